#include "lattice/selftest/cases.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>

namespace lattice {
namespace {

// Half a unit in the last place of `value` in a dtype with `bits` bits of significand and smallest
// exponent `lowest`.
double half_ulp(double value, int bits, int lowest) {
  const int exponent = value == 0 ? lowest : std::max(lowest, std::ilogb(value));
  return std::ldexp(0.5, exponent - bits + 1);
}

}  // namespace

Values random_values(Random& random, mx::Shape shape, mx::Dtype dtype) {
  int64_t n = 1;
  for (int d : shape) n *= d;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = random.real();
  mx::array rounded =
      mx::astype(mx::array(values.data(), std::move(shape), mx::float32), dtype, mx::Device::cpu);
  mx::array floats = mx::astype(rounded, mx::float32, mx::Device::cpu);
  floats.eval();
  std::vector<double> exact(static_cast<size_t>(n));
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = double{floats.data<float>()[i]};
  return {rounded, exact};
}

CoordinateSet random_coords(Random& random, int64_t n, int64_t extent) {
  std::vector<std::array<int32_t, 4>> rows;
  while (static_cast<int64_t>(rows.size()) < n) {
    std::array<int32_t, 4> row = {static_cast<int32_t>(random.below(2)), 0, 0, 0};
    for (size_t a = 1; a < 4; ++a) row[a] = static_cast<int32_t>(random.below(2 * extent) - extent);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
  return CoordinateSet(mx::array(n ? rows[0].data() : nullptr, {static_cast<int>(n), 4}, mx::int32),
                       "oracle_cases");
}

Relation::Ptr make_relation(Random& random, RelationKind kind, int64_t n) {
  const CoordinateSet in = random_coords(random, n, 3);
  switch (kind) {
    case RelationKind::target:
      return relate(kind, in, KernelSpec({3, 2, 3}, {2, 2, 1}, {1, 0, 1}, {1, 1, 1}),
                    random_coords(random, n, 2), "oracle_cases");
    case RelationKind::target_transposed:
      return relate(kind, in, KernelSpec({2, 3, 2}, {2, 2, 2}, {0, 1, 0}, {1, 1, 2}),
                    random_coords(random, n, 5), "oracle_cases");
    case RelationKind::forward:
      return relate(kind, in, KernelSpec({3, 3, 2}, {2, 1, 2}, {1, 0, 0}, {1, 2, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::submanifold:
      return relate(kind, in, KernelSpec(), std::nullopt, "oracle_cases");
    case RelationKind::transposed:
      return relate(kind, in, KernelSpec({3, 2, 2}, {2, 2, 2}, {1, 0, 0}, {1, 1, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::generative:
      return relate(kind, in, KernelSpec({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::reached: {
      KernelSpec spec({3, 3, 3}, {2, 2, 1}, {1, 1, 0}, {1, 1, 1});
      spec.bounds = Bounds{{0, 0, 0}, {9, 9, 9}};
      return relate(kind, in, spec, std::nullopt, "oracle_cases");
    }
    case RelationKind::reached_transposed:
      return relate(kind, in, KernelSpec({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::custom:
      break;
  }
  // Any edges, in any order, some of them twice.
  const int64_t n_edges = 6 * n;
  std::vector<int32_t> ends[3];
  for (int64_t e = 0; e < n_edges; ++e) {
    ends[0].push_back(static_cast<int32_t>(random.below(n)));
    ends[1].push_back(static_cast<int32_t>(random.below(n + 3)));
    ends[2].push_back(static_cast<int32_t>(random.below(4)));
  }
  const auto column = [&](int i) {
    return mx::array(ends[i].data(), {static_cast<int>(n_edges)}, mx::int32);
  };
  return Relation::from_edges(column(0), column(1), column(2), n, n + 3, 4);
}

double oracle_error(const Answer& test, const graph::Arrays& results, double part) {
  const int bits = test.dtype == mx::float32 ? 24 : test.dtype == mx::float16 ? 11 : 8;
  const int lowest = test.dtype == mx::float16 ? -14 : -126;
  double worst = 0;
  size_t i = 0;
  for (const mx::array& result : results) {
    mx::array values =
        mx::contiguous(mx::astype(result, mx::float32, mx::Device::cpu), false, mx::Device::cpu);
    values.eval();
    if (i + values.size() > test.expected.size()) return INFINITY;
    for (size_t j = 0; j < values.size(); ++j, ++i) {
      const double tolerance = half_ulp(test.expected[i], bits, lowest) + part * test.magnitude[i];
      const double error =
          std::fabs(double{values.data<float>()[j]} - test.expected[i]) / tolerance;
      worst = error <= worst ? worst : error;  // NaN counts as worse
      if (std::isnan(error)) return INFINITY;
    }
  }
  return i == test.expected.size() ? worst : INFINITY;
}

std::vector<OracleCase> oracle_cases() {
  std::vector<OracleCase> cases;
  add_conv_cases(cases);
  add_pool_cases(cases);
  add_map_rows_cases(cases);
  add_per_edge_cases(cases);
  add_geometry_cases(cases);
  add_integer_cases(cases);
  add_distance_cases(cases);
  add_attention_cases(cases);
  add_norm_cases(cases);
  return cases;
}

std::vector<PlainCase> plain_cases() {
  std::vector<PlainCase> cases;
  add_features_cases(cases);
  add_distance_gradient_cases(cases);
  add_neighbor_attention_cases(cases);
  return cases;
}

}  // namespace lattice
