#include "tests/support/cases.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tests/support/random.h"

namespace lattice::support {
namespace {

struct Range {
  int64_t lo, hi;
};

// v + step, kept inside the range.
int64_t moved(int64_t v, int64_t step, const Range& range) {
  if (step > 0) return v > range.hi - step ? range.hi : v + step;
  return v < range.lo - step ? range.lo : v + step;
}

int64_t pick(Random& random, std::initializer_list<int64_t> values) {
  return values.begin()[random.below(static_cast<int64_t>(values.size()))];
}

Triple pick3(Random& random, std::initializer_list<int64_t> values) {
  return {pick(random, values), pick(random, values), pick(random, values)};
}

Spec random_spec(Random& random, Kind kind) {
  Spec spec;
  if (kind == Kind::submanifold) {
    spec.size = pick3(random, {1, 3, 3, 5});
  } else {
    spec.size = pick3(random, {1, 2, 2, 3, 3, 4, 5});
    spec.stride = random.chance(0.3) ? Triple{1, 1, 1} : pick3(random, {1, 2, 2, 3, 4});
    spec.padding = random.chance(0.5) ? Triple{0, 0, 0} : pick3(random, {0, 1, 2, 3});
    if (random.chance(0.05)) spec.stride[1] = pick(random, {1000, 1 << 20, 2147483647});
    if (random.chance(0.05)) spec.padding[2] = pick(random, {100, 2147483647});
  }
  if (random.chance(0.4)) spec.dilation = pick3(random, {1, 2, 3});
  if (random.chance(0.05)) spec.dilation[0] = pick(random, {50, 1 << 20, 2147483647});
  if (kind == Kind::generative) spec.padding = {0, 0, 0}, spec.dilation = {1, 1, 1};
  return spec;
}

// Where a cluster of coordinates sits on an axis. `divisor` > 1: the ends after multiplication by
// it.
int64_t anchor(Random& random, const Range& range, int64_t divisor) {
  switch (random.below(8)) {
    case 0:
      return range.lo / divisor;
    case 1:
      return range.hi / divisor;
    case 2:
      return random.between(range.lo / 2, range.hi / 2) / divisor;
    case 3:
      return random.between(-1000, 1000);
    default:
      return 0;
  }
}

std::vector<Coordinate> cluster(Random& random, const Range& range, const Triple& divisor,
                                int64_t n) {
  const int64_t extent = pick(random, {1, 2, 4, 4, 8, 30});
  const int64_t batches = random.between(1, 3);
  const int64_t last_batch = random.chance(0.1) ? range.hi : batches - 1;
  const bool plain = random.chance(0.5);
  Triple center{0, 0, 0};
  for (size_t a = 0; a < 3 && !plain; ++a) center[a] = anchor(random, range, divisor[a]);
  std::vector<Coordinate> out;
  for (int64_t i = 0; i < n; ++i) {
    Coordinate c{random.below(batches), 0, 0, 0};
    if (c[0] == batches - 1) c[0] = last_batch;
    for (size_t a = 0; a < 3; ++a)
      c[a + 1] = moved(center[a], random.between(-extent, extent), range);
    out.push_back(c);
  }
  return out;
}

// Rows near where edges are likely: at the image of an input row, moved a little; some anywhere,
// some twice.
std::vector<Coordinate> random_target(Random& random, const Case& c, const Range& range) {
  std::vector<Coordinate> out = cluster(random, range, {1, 1, 1}, random.below(10));
  const int64_t n = c.in.empty() ? 0 : random.below(static_cast<int64_t>(c.in.size()) * 2);
  for (int64_t i = 0; i < n; ++i) {
    Coordinate t = c.in[static_cast<size_t>(random.below(static_cast<int64_t>(c.in.size())))];
    for (size_t a = 0; a < 3; ++a) {
      int64_t& v = t[a + 1];
      const int64_t s = c.spec.stride[a];
      if (c.kind == Kind::target)
        v /= s;
      else
        v = v > range.hi / s ? range.hi : v < range.lo / s ? range.lo : v * s;
      v = moved(v, random.between(-2, 3), range);
    }
    out.push_back(t);
  }
  if (random.chance(0.7)) {
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    for (size_t i = out.size(); i > 1; --i)
      std::swap(out[i - 1], out[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  return out;
}

std::string text_of(const Triple& t) {
  return "(" + std::to_string(t[0]) + "," + std::to_string(t[1]) + "," + std::to_string(t[2]) + ")";
}

}  // namespace

std::string Case::text() const {
  std::string out =
      std::string("case ") + std::to_string(seed) + " " + name(kind) + (is64 ? " int64" : " int32");
  out += " rows " + std::to_string(in.size()) + " target " + std::to_string(target.size());
  return out + " size " + text_of(spec.size) + " stride " + text_of(spec.stride) + " padding " +
         text_of(spec.padding) + " dilation " + text_of(spec.dilation);
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case c;
  c.seed = seed;
  c.kind = kKinds[static_cast<size_t>(random.below(kKinds.size()))];
  c.is64 = random.chance(0.4);
  c.spec = random_spec(random, c.kind);
  const Range range =
      c.is64 ? Range{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}
             : Range{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  const bool up =
      c.kind == Kind::transposed || c.kind == Kind::generative || c.kind == Kind::target_transposed;
  const Triple divisor = up ? c.spec.stride : Triple{1, 1, 1};
  std::vector<Coordinate> drawn =
      cluster(random, range, divisor, pick(random, {0, 1, 2, 8, 30, 80, 250}));
  if (random.chance(0.2))
    for (const Coordinate& row : cluster(random, range, divisor, random.below(30)))
      drawn.push_back(row);
  std::set<Coordinate> seen;
  for (const Coordinate& row : drawn)
    if (seen.insert(row).second) c.in.push_back(row);
  if (c.kind == Kind::target || c.kind == Kind::target_transposed)
    c.target = random_target(random, c, range);
  return c;
}

Values random_values(int64_t n, uint64_t seed) {
  Random random(seed);
  Values out(static_cast<size_t>(n));
  for (double& v : out) v = random.uniform(-1.0, 1.0);
  return out;
}

}  // namespace lattice::support
