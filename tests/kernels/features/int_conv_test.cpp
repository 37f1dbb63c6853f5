// int_conv against its definition: not one bit may differ, on any instruction set, with any number
// of threads and rows per step. LATTICE_INT_CASES sets the number of random layers.
#include "lattice/kernels/cpu/features/int_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/int_pool.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Random;

CoordSpan span_of(const support::Coords& coords) {
  return {coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
}
RelationLists submanifold(const support::Coords& coords) {
  return relate_same(std::make_shared<const CoordIndex>(index_coords(span_of(coords))), Kernel{});
}
RelationLists downward(const support::Coords& coords) {
  MadeCoords made;
  return relate_downscaled(span_of(coords),
                           std::make_shared<const CoordIndex>(index_coords(span_of(coords))),
                           {.size = {2, 2, 2}, .stride = {2, 2, 2}}, &made);
}
RelationLists pointwise(int64_t n) {
  RelationLists same;
  same.n_in = same.n_out = same.n_edges = n;
  same.lists.resize(1);
  same.lists[0].size = n;
  return same;
}
// Any edges, some twice.
RelationLists any_edges(int64_t n_in, int64_t n_out, int64_t n_edges, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> in, out, k;
  for (int64_t e = 0; e < n_edges; ++e) {
    in.push_back(static_cast<int32_t>(random.below(n_in)));
    out.push_back(static_cast<int32_t>(random.below(n_out)));
    k.push_back(static_cast<int32_t>(random.below(5)));
  }
  return lists_of_edges(in.data(), out.data(), k.data(), n_edges, n_in, n_out, 5);
}

// Integers, and the layer that points into them.
struct Problem {
  std::vector<int8_t> w;
  std::vector<int32_t> bias, factor;
  std::vector<float> scale;
  std::vector<uint8_t> x, more, residual;  // bytes of any type
  std::vector<uint8_t> table;
  IntLayer layer;
  IntConvArgs args;
};

std::vector<uint8_t> bytes(Random& random, int64_t n, IntType type, bool extreme) {
  std::vector<uint8_t> out;
  for (int64_t i = 0; i < n; ++i) {
    if (type != IntType::i16) {
      out.push_back(static_cast<uint8_t>(extreme ? 255 * random.below(2) : random.below(256)));
    } else {
      const int64_t v = extreme ? 65535 * random.below(2) - 32768 : random.between(-2100, 2100);
      out.push_back(static_cast<uint8_t>(v & 255));
      out.push_back(static_cast<uint8_t>((v >> 8) & 255));
    }
  }
  return out;
}

// Weights that just keep the lane rule: two of 64, or 127 and 1, in each lane and of each sign.
void fill_to_the_limit(Random& random, const IntLayer& z, std::vector<int8_t>& w) {
  for (int64_t k = 0; k < z.n_k; ++k)
    for (int64_t m = 0; m < z.c_out; ++m)
      for (int64_t b = 0; b < z.c_in; b += 16)
        for (int64_t h = 0; h < 4; h += 2) {
          const int8_t sign = random.chance(0.5) ? 1 : -1, large = random.chance(0.5) ? 127 : 64;
          const auto put = [&](int64_t c, int q) {
            if (b + h + c < z.c_in)
              w[static_cast<size_t>((k * z.c_in + b + h + c) * z.c_out + m)] =
                  static_cast<int8_t>(sign * q);
          };
          put(0, large), put(4, 128 - large), put(8, -large), put(13, large - 128);
        }
}

struct Shape {
  int64_t c_in, more, c_out;
  IntType in, out;
  int residual;  // 0 none, 1 u8, 2 int16
  bool extreme;
  bool relu = false, table = false;
};

Problem make(const RelationLists& lists, const Shape& s, uint64_t seed) {
  Random random(seed);
  Problem p;
  const int64_t c_in = s.c_in + s.more, n_w = lists.n_k() * c_in * s.c_out;
  p.layer = {.in = s.in, .n_k = lists.n_k(), .c_in = c_in, .c_out = s.c_out};
  p.w.assign(static_cast<size_t>(n_w), 0);
  if (s.extreme) {
    fill_to_the_limit(random, p.layer, p.w);
  } else {
    std::vector<float> w(static_cast<size_t>(n_w)), least(static_cast<size_t>(s.c_out), 1e-6f);
    for (float& v : w) v = static_cast<float>(random.bump());
    const IntCodes codes = round_weights(w.data(), lists.n_k(), c_in, s.c_out, least, {}, true);
    p.w.assign(codes.w.begin(), codes.w.end());
  }
  for (int64_t m = 0; m < s.c_out; ++m) {
    p.bias.push_back(static_cast<int32_t>(random.between(-100000, 100000)));
    p.factor.push_back(static_cast<int32_t>(random.between(1, 3000)));
    // Also outputs that are clamped, and scales for which many values lie between two integers.
    p.scale.push_back(random.chance(0.3) ? 0.5f : static_cast<float>(random.uniform(1e-5, 3e-3)));
  }
  p.x = bytes(random, lists.n_in * s.c_in, s.in, s.extreme);
  p.more = bytes(random, lists.n_in * s.more, s.in, s.extreme);
  const IntType residual = s.residual == 2 ? IntType::i16 : IntType::u8;
  p.residual = bytes(random, lists.n_out * s.c_out, residual, s.extreme);
  p.layer.w = p.w.data(), p.layer.bias = p.bias.data(), p.layer.scale = p.scale.data();
  if (s.residual) p.layer.factor = p.factor.data(), p.layer.residual = residual;
  p.args.x = {p.x.data(), s.c_in};
  if (s.more) p.args.more = {p.more.data(), s.more};
  if (s.residual) p.args.residual = p.residual.data();
  p.args.residual_type = residual;
  p.args.out = s.out;
  p.args.relu = s.relu;
  if (s.table)
    for (int i = 0; i < 256; ++i) p.table.push_back(static_cast<uint8_t>(random.bits()));
  return p;
}

// The bytes that `run` writes.
std::vector<uint8_t> made(const RelationLists& lists, Problem& p,
                          const std::function<void(const IntConvArgs&)>& run) {
  std::vector<uint8_t> y(
      static_cast<size_t>(lists.n_out * p.layer.c_out * int_type_bytes(p.args.out)), 0xcd);
  IntConvArgs args = p.args;
  args.y = y.data();
  if (!p.table.empty()) args.table = p.table.data();
  run(args);
  return y;
}

int64_t comparisons = 0;

void check(const RelationLists& lists, const Shape& shape, uint64_t seed,
           bool one_edge_each = false) {
  SCOPED_TRACE(std::to_string(shape.c_in) + " + " + std::to_string(shape.more) + " -> " +
               std::to_string(shape.c_out) + ", seed " + std::to_string(seed));
  Problem p = make(lists, shape, seed);
  const auto expected =
      made(lists, p, [&](const IntConvArgs& a) { reference_int_conv(lists, p.layer, a); });
  ASSERT_EQ(expected, made(lists, p, [&](const IntConvArgs& a) {
              reference_int_conv(lists, p.layer, a, true);
            }));
  const IntWeight weight(p.layer);
  p.args.weight = &weight;
  p.args.one_edge_each = one_edge_each;
  const int before = thread_count();
  support::on_each_target([&] {
    for (const IntDot dot : int_dots())
      for (const int threads : {1, 2, 7})
        for (const int64_t rows : {32, 64, 200, 1024}) {
          set_thread_count(threads);
          p.args.step_rows = rows;
          p.args.dot = dot;
          const TileBounds bounds = tile_bounds(lists, rows == 200 ? 100 : 32);
          const auto found =
              made(lists, p, [&](const IntConvArgs& a) { int_conv(lists, bounds, a); });
          ASSERT_EQ(found, expected)
              << name(dot) << ", " << threads << " threads, " << rows << " rows";
          ++comparisons;
        }
  });
  set_thread_count(before);
}

Shape random_shape(Random& random) {
  constexpr int64_t kIn[] = {1, 4, 16, 20, 32, 48, 96, 130}, kOut[] = {1, 20, 32, 33, 64};
  Shape s{kIn[random.below(8)],  random.chance(0.3) ? kIn[random.below(6)] : 0,
          kOut[random.below(5)], IntType::u8,
          IntType::u8,           0,
          random.chance(0.4)};
  if (random.chance(0.3)) s.in = IntType::s8;
  if (random.chance(0.25)) s.in = IntType::i16, s.c_in = kIn[random.below(4)], s.more = 0;
  s.out = static_cast<IntType>(random.below(4));
  s.relu = random.chance(0.5);
  s.table = s.out != IntType::i16 && s.out != IntType::f32 && random.chance(0.3);
  s.residual = static_cast<int>(random.below(3));
  return s;
}

TEST(IntConv, NotOneBitDiffers) {
  const char* given = std::getenv("LATTICE_INT_CASES");
  const int64_t cases = given ? std::atoll(given) : 40;
  Random random(3);
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = random.bits();
    const support::Coords coords =
        support::random_set(1 + random.below(250), 4, 2, seed);  // in random order
    const Shape shape = random_shape(random);
    switch (i % 5) {
      case 0:
        check(submanifold(coords), shape, seed);
        break;
      case 1:
        check(downward(coords), shape, seed);
        break;
      case 2:
        check(reversed(downward(coords)), shape, seed, true);
        break;
      case 3:
        check(pointwise(random.below(300)), shape, seed);
        break;
      default:
        check(any_edges(50, 70, 300, seed), shape, seed);
    }
  }
  std::printf("%lld comparisons\n", static_cast<long long>(comparisons));
}

// A kernel without the lane rule saturates on AVX2. The comparison must see it, or it would see
// nothing.
TEST(IntConv, SaturationIsSeen) {
  const RelationLists lists = pointwise(40);
  Problem p = make(lists, {64, 0, 32, IntType::u8, IntType::f32, 0, true}, 5);
  std::fill(p.w.begin(), p.w.end(), int8_t{127});
  std::fill(p.x.begin(), p.x.end(), uint8_t{255});
  EXPECT_NE(lane_rule_broken(p.layer), "");
  EXPECT_THROW(IntWeight{p.layer}, std::invalid_argument);
  const IntWeight unproven(p.layer, false);
  p.args.weight = &unproven;
  const auto expected =
      made(lists, p, [&](const IntConvArgs& a) { reference_int_conv(lists, p.layer, a); });
  const TileBounds bounds = tile_bounds(lists, 64);
  for (const IntDot dot : int_dots()) {
    p.args.dot = dot;
    const auto found = made(lists, p, [&](const IntConvArgs& a) { int_conv(lists, bounds, a); });
    EXPECT_EQ(found != expected, dot == IntDot::avx2) << name(dot);
  }
}

TEST(IntConv, NoRowsAndNoEdges) {
  const Shape shape{20, 0, 33, IntType::u8, IntType::u8, 0, false};
  check(submanifold(support::empty()), shape, 1);
  check(lists_of_edges(nullptr, nullptr, nullptr, 0, 4, 300, 3), shape, 2);
}

TEST(IntConv, OverflowIsRefused) {
  const RelationLists lists = pointwise(1);
  Problem p = make(lists, {16, 0, 1, IntType::u8, IntType::u8, 1, false}, 5);
  EXPECT_EQ(sums_overflow(p.layer), "");
  EXPECT_LT(share_of_int32(p.layer), 0.01);
  p.factor[0] = 1 << 24;
  EXPECT_NE(sums_overflow(p.layer), "");
  EXPECT_THROW(IntWeight{p.layer}, std::invalid_argument);
}

TEST(IntConv, WeightsKeepAllRules) {
  Random random(11);
  const int64_t n_k = 3, c_in = 40, c_out = 9;
  std::vector<float> w(static_cast<size_t>(n_k * c_in * c_out)),
      least(static_cast<size_t>(c_out), 1e-6f), whole(static_cast<size_t>(c_out), 0.37f);
  for (float& v : w) v = static_cast<float>(random.uniform(0.1, 1));  // one sign: the worst lanes
  const IntCodes codes = round_weights(w.data(), n_k, c_in, c_out, least, whole, true);
  const std::vector<int32_t> bias(static_cast<size_t>(c_out));
  const IntLayer layer{
      .n_k = n_k, .c_in = c_in, .c_out = c_out, .w = codes.w.data(), .bias = bias.data()};
  EXPECT_EQ(lane_rule_broken(layer), "");
  for (int64_t m = 0; m < c_out; ++m) {
    const float ratio = 0.37f / codes.unit[m];
    EXPECT_NEAR(ratio, std::nearbyint(ratio), 1e-4);
    for (int64_t i = 0; i < n_k * c_in; ++i) {
      const float back = static_cast<float>(codes.w[i * c_out + m]) * codes.unit[m];
      EXPECT_NEAR(back, w[static_cast<size_t>(i * c_out + m)], 0.51f * codes.unit[m]);
    }
  }
  w[7] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(round_weights(w.data(), n_k, c_in, c_out, least, {}, true), std::invalid_argument);
}

TEST(IntConv, FloatsBecomeCodes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0.5f, 1.5f, -2.5f, 1e30f, -1e30f, nan}, inverse = {1, 1, 1};
  std::vector<int16_t> y(6);
  quantize_rows(x.data(), 2, 3, inverse.data(), IntType::i16, y.data());
  EXPECT_EQ(y, (std::vector<int16_t>{0, 2, -2, 2047, -2047, 0}));
  std::vector<uint8_t> bytes(6);
  quantize_rows(x.data(), 2, 3, inverse.data(), IntType::s8, bytes.data());
  EXPECT_EQ(bytes, (std::vector<uint8_t>{128, 130, 126, 255, 1, 128}));
}

// Sums, means and maxima of bytes, one edge at a time.
TEST(IntPool, EqualsTheDefinition) {
  const support::Coords coords = support::random_set(300, 4, 2, 5);
  const RelationLists lists = downward(coords);
  const int64_t c = 21;
  Random random(8);
  const std::vector<uint8_t> x = bytes(random, lists.n_in * c, IntType::u8, false);
  for (const Reduction mode : {Reduction::max, Reduction::sum, Reduction::mean}) {
    std::vector<int64_t> sums(static_cast<size_t>(lists.n_out * c)), edges(sums.size());
    for (const OffsetList& list : lists.lists)
      for (int64_t e = 0; e < list.size; ++e) {
        const int64_t i = lists.in_rows() ? lists.in_rows()[list.in_at(e)] : list.in_at(e);
        const int64_t o = lists.out_rows() ? lists.out_rows()[list.out_at(e)] : list.out_at(e);
        for (int64_t j = 0; j < c; ++j) {
          const auto at = static_cast<size_t>(o * c + j);
          const int64_t v = x[static_cast<size_t>(i * c + j)];
          sums[at] = mode == Reduction::max ? std::max(sums[at], v) : sums[at] + v;
          ++edges[at];
        }
      }
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < sums.size(); ++i) {
      const float m = mode == Reduction::mean ? 0.9f / static_cast<float>(edges[i])
                                              : (mode == Reduction::max ? 1.0f : 0.9f);
      const float v = static_cast<float>(sums[i]) * m;
      expected.push_back(static_cast<uint8_t>(std::nearbyint(std::min(v, 255.0f))));
    }
    for (const int64_t tile : {1, 32, 4096}) {
      std::vector<uint8_t> found(expected.size());
      int_pool(lists, tile_bounds(lists, tile), x.data(), c, mode, 0.9f, IntType::u8, found.data());
      EXPECT_EQ(found, expected) << "tile " << tile;
    }
  }
}

}  // namespace
}  // namespace lattice::cpu
