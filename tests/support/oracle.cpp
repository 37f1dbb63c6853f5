#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>

namespace lattice::support {
namespace {

__extension__ typedef __int128 Wide;
using WideCoordinate = std::array<Wide, 4>;

std::string to_text(Wide value) {
  if (value < 0) return "-" + to_text(-value);
  std::string last(1, static_cast<char>('0' + static_cast<int>(value % 10)));
  return value < 10 ? last : to_text(value / 10) + last;
}

Wide floor_divide(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

WideCoordinate widen(const Coordinate& c) { return {c[0], c[1], c[2], c[3]}; }

Coordinate narrow(const WideCoordinate& c) {
  Coordinate out;
  for (size_t a = 0; a < 4; ++a) out[a] = static_cast<int64_t>(c[a]);
  return out;
}

// coordinate -> row, the first one.
std::map<WideCoordinate, int64_t> rows_of(const std::vector<Coordinate>& coords) {
  std::map<WideCoordinate, int64_t> rows;
  for (size_t r = 0; r < coords.size(); ++r)
    rows.try_emplace(widen(coords[r]), static_cast<int64_t>(r));
  return rows;
}

// c * s + o - p on x, y, z.
WideCoordinate scaled(const Coordinate& c, const Spec& spec, const Triple& offset) {
  WideCoordinate out = widen(c);
  for (size_t a = 0; a < 3; ++a)
    out[a + 1] = out[a + 1] * spec.stride[a] + offset[a] - spec.padding[a];
  return out;
}

std::vector<Coordinate> strided(const std::vector<Coordinate>& in, const Spec& spec) {
  if (spec.stride == Triple{1, 1, 1} && spec.padding == Triple{0, 0, 0}) return in;
  std::vector<Coordinate> out;
  std::set<WideCoordinate> seen;
  for (const Coordinate& c : in) {
    WideCoordinate q = widen(c);
    for (size_t a = 0; a < 3; ++a) q[a + 1] = floor_divide(q[a + 1], spec.stride[a]);
    if (seen.insert(q).second) out.push_back(narrow(q));
  }
  return out;
}

RelationOracle probe_inputs(const std::vector<Coordinate>& in, const Spec& spec,
                            std::vector<Coordinate> out) {
  RelationOracle r{std::move(out), {}, {}};
  auto rows = rows_of(in);
  auto offsets = kernel_offsets(spec.size, spec.dilation, true);
  for (size_t o = 0; o < r.out.size(); ++o)
    for (size_t k = 0; k < offsets.size(); ++k)
      if (auto hit = rows.find(scaled(r.out[o], spec, offsets[k])); hit != rows.end())
        r.edges.push_back({hit->second, static_cast<int64_t>(o), static_cast<int64_t>(k)});
  return r;
}

RelationOracle produce_outputs(const std::vector<Coordinate>& in, const Spec& spec, bool is64) {
  const Wide lo = is64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  const Wide hi = is64 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  RelationOracle r;
  std::map<WideCoordinate, int64_t> rows;
  auto offsets = kernel_offsets(spec.size, spec.dilation, false);
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t k = 0; k < offsets.size(); ++k) {
      WideCoordinate q = scaled(in[i], spec, offsets[k]);
      for (size_t a = 1; a < 4; ++a)
        if (q[a] < lo || q[a] > hi) return {{}, {}, Overflow{static_cast<int>(a), to_text(q[a])}};
      auto [row, fresh] = rows.try_emplace(q, static_cast<int64_t>(rows.size()));
      if (fresh) r.out.push_back(narrow(q));
      r.edges.push_back({static_cast<int64_t>(i), row->second, static_cast<int64_t>(k)});
    }
  std::sort(r.edges.begin(), r.edges.end(), [](const Edge& a, const Edge& b) {
    return std::array{a.out, a.k, a.in} < std::array{b.out, b.k, b.in};
  });
  return r;
}

RelationOracle probe_parents(const std::vector<Coordinate>& in, const Spec& spec,
                             std::vector<Coordinate> out) {
  RelationOracle r{std::move(out), {}, {}};
  auto rows = rows_of(in);
  auto offsets = kernel_offsets(spec.size, spec.dilation, false);
  for (size_t o = 0; o < r.out.size(); ++o)
    for (size_t k = 0; k < offsets.size(); ++k) {
      WideCoordinate q = widen(r.out[o]);
      bool whole = true;
      for (size_t a = 0; a < 3; ++a) {
        q[a + 1] += Wide{spec.padding[a]} - offsets[k][a];
        whole = whole && q[a + 1] % spec.stride[a] == 0;
        q[a + 1] /= spec.stride[a];
      }
      if (auto hit = rows.find(q); whole && hit != rows.end())
        r.edges.push_back({hit->second, static_cast<int64_t>(o), static_cast<int64_t>(k)});
    }
  return r;
}

// Calls f(edge, x index, w index, y index) for each product of a convolution.
template <typename F>
void each_product(const ConvShape& s, std::span<const Edge> edges, const F& f) {
  const int64_t group_in = s.c_in / s.groups, group_out = s.c_out / s.groups;
  for (const Edge& e : edges)
    for (int64_t m = 0; m < s.c_out; ++m)
      for (int64_t c = 0; c < group_in; ++c) {
        int64_t x = e.in * s.c_in + m / group_out * group_in + c;
        f(static_cast<size_t>(x), static_cast<size_t>((e.k * group_in + c) * s.c_out + m),
          static_cast<size_t>(e.out * s.c_out + m));
      }
}

}  // namespace

const char* name(Kind kind) {
  static constexpr const char* kNames[] = {"forward",    "target",     "submanifold",
                                           "transposed", "generative", "target_transposed"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Triple> kernel_offsets(const Triple& size, const Triple& dilation, bool centered) {
  auto at = [&](size_t a, int64_t i) {
    int64_t first = centered && size[a] % 2 == 1 ? -(size[a] / 2) : 0;
    return (first + i) * dilation[a];
  };
  std::vector<Triple> offsets;
  for (int64_t x = 0; x < size[0]; ++x)
    for (int64_t y = 0; y < size[1]; ++y)
      for (int64_t z = 0; z < size[2]; ++z) offsets.push_back({at(0, x), at(1, y), at(2, z)});
  return offsets;
}

RelationOracle relate(Kind kind, const std::vector<Coordinate>& in, const Spec& spec, bool is64,
                      const std::vector<Coordinate>& target) {
  switch (kind) {
    case Kind::forward:
      return probe_inputs(in, spec, strided(in, spec));
    case Kind::target:
      return probe_inputs(in, spec, target);
    case Kind::submanifold:
      return probe_inputs(in, {spec.size, {1, 1, 1}, {0, 0, 0}, spec.dilation}, in);
    case Kind::transposed:
      return produce_outputs(in, spec, is64);
    case Kind::generative:
      return produce_outputs(in, {spec.size, spec.stride, {0, 0, 0}, {1, 1, 1}}, is64);
    case Kind::target_transposed:
      return probe_parents(in, spec, target);
  }
  return {};
}

Values conv(const ConvShape& s, std::span<const Edge> edges, const Values& x, const Values& w) {
  Values y(static_cast<size_t>(s.n_out * s.c_out));
  each_product(s, edges, [&](size_t ix, size_t iw, size_t iy) { y[iy] += x[ix] * w[iw]; });
  return y;
}

Values conv_input_grad(const ConvShape& s, std::span<const Edge> edges, const Values& gy,
                       const Values& w) {
  Values dx(static_cast<size_t>(s.n_in * s.c_in));
  each_product(s, edges, [&](size_t ix, size_t iw, size_t iy) { dx[ix] += gy[iy] * w[iw]; });
  return dx;
}

Values outer(const ConvShape& s, std::span<const Edge> edges, const Values& x, const Values& gy) {
  Values dw(static_cast<size_t>(s.n_k * (s.c_in / s.groups) * s.c_out));
  each_product(s, edges, [&](size_t ix, size_t iw, size_t iy) { dw[iw] += x[ix] * gy[iy]; });
  return dw;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double adjoint_error(const Values& gy, const Values& lx, const Values& adjoint_gy,
                     const Values& x) {
  auto magnitude = [](const Values& a, const Values& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] * b[i]);
    return sum;
  };
  double scale = magnitude(gy, lx) + magnitude(adjoint_gy, x);
  return scale == 0 ? 0 : std::abs(dot(gy, lx) - dot(adjoint_gy, x)) / scale;
}

double relative_error(const Values& a, const Values& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i]))
      return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst == 0 ? 0 : worst / scale;
}

}  // namespace lattice::support
