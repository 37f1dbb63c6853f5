// Oracle cases of per_edge_apply and per_edge_outer.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/graph/dtype.h"
#include "lattice/ops/rulebook.h"
#include "lattice/routes/conv.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Sizes {
  int groups, c, m;
};

OracleCase triplets_case(Random& random, bool outer, const Relation::Ptr& r, const Sizes& z,
                         bool transposed, mx::Dtype dtype) {
  const int n_in = static_cast<int>(r->n_in()), n_out = static_cast<int>(r->n_out()),
            n_k = static_cast<int>(r->n_kernels());
  const Values x = random_values(random, {n_in, z.groups * z.c}, dtype);
  // Matrices are stored (N, G, M, C) when transposed, and are given as a view.
  const Values a = outer        ? random_values(random, {n_out, z.groups * z.m}, dtype)
                   : transposed ? random_values(random, {n_k, z.groups, z.m, z.c}, dtype)
                                : random_values(random, {n_k, z.groups, z.c, z.m}, dtype);
  OracleCase test;
  const routes::ConvProblem shape{r, z.groups * z.c, z.groups * z.m, z.groups, dtype};
  test.dtype = dtype;
  if (outer)
    test.question = question(routes::per_edge_outer_rows(), {shape, x.array, a.array});
  else
    test.question = question(
        routes::per_edge_apply_rows(),
        {shape, x.array, transposed ? mx::swapaxes(a.array, 2, 3, mx::Device::cpu) : a.array});
  test.expected.assign(
      static_cast<size_t>(outer ? n_k * z.groups * z.c * z.m : n_out * z.groups * z.m), 0.0);
  test.magnitude = test.expected;
  const Edges& edges = r->edges();
  for (int64_t e = 0; e < r->edge_count(); ++e) {
    const int64_t i = edges.in_rows.data<int32_t>()[e], o = edges.out_rows.data<int32_t>()[e],
                  k = edges.kernel_ids.data<int32_t>()[e];
    for (int64_t g = 0; g < z.groups; ++g)
      for (int64_t c = 0; c < z.c; ++c)
        for (int64_t m = 0; m < z.m; ++m) {
          const int64_t matrix = ((k * z.groups + g) * z.c + c) * z.m + m,
                        row = (o * z.groups + g) * z.m + m;
          const int64_t stored = transposed ? ((k * z.groups + g) * z.m + m) * z.c + c : matrix;
          const double term = x.exact[static_cast<size_t>((i * z.groups + g) * z.c + c)] *
                              a.exact[static_cast<size_t>(outer ? row : stored)];
          test.expected[static_cast<size_t>(outer ? matrix : row)] += term;
          test.magnitude[static_cast<size_t>(outer ? matrix : row)] += std::fabs(term);
        }
  }
  test.label = std::to_string(r->edge_count()) + " triplets " + std::to_string(z.groups) + " x " +
               std::to_string(z.c) + " x " + std::to_string(z.m) +
               (transposed ? " transposed " : " ") + graph::dtype_name(dtype);
  return test;
}

}  // namespace

void add_per_edge_cases(std::vector<OracleCase>& cases) {
  static constexpr Sizes kSizes[] = {{1, 1, 1}, {1, 5, 17}, {2, 16, 16}, {3, 33, 70}, {1, 64, 130}};
  Random random{11};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int n : {0, 1, 40}) {
      std::vector<int32_t> ends[3];
      for (int e = 0; e < n; ++e) {
        ends[0].push_back(static_cast<int32_t>(random.below(9)));
        ends[1].push_back(static_cast<int32_t>(random.below(13)));
        ends[2].push_back(static_cast<int32_t>(random.below(30)));
      }
      const auto column = [&](int i) { return mx::array(ends[i].data(), {n}, mx::int32); };
      const Relation::Ptr r = Relation::from_edges(column(0), column(1), column(2), 9, 13, 30);
      for (const Sizes& z : kSizes) {
        cases.push_back(triplets_case(random, false, r, z, false, dtype));
        cases.push_back(triplets_case(random, false, r, z, true, dtype));
        cases.push_back(triplets_case(random, true, r, z, false, dtype));
        cases.push_back(triplets_case(random, true, r->reversed(), z, false, dtype));
      }
    }
  // Several edges per matrix, which the kernels of conv and outer serve; points that share the
  // cells of a kernel, and edges in any order.
  static constexpr Sizes kShared[] = {{1, 7, 64}, {1, 9, 65},  {1, 48, 80},
                                      {2, 8, 64}, {1, 33, 12}, {2, 16, 8}};
  Random other{29};
  const Values points = random_values(other, {60, 3}, mx::float32);
  const PointSet set(points.array, std::nullopt, 0.8f);
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const Relation::Ptr& r :
         {build_rulebook(set, set, 3).relation, make_relation(other, RelationKind::custom, 30)})
      for (const Sizes& z : kShared) {
        cases.push_back(triplets_case(other, false, r, z, z.c % 2 == 0, dtype));
        cases.push_back(triplets_case(other, true, r, z, false, dtype));
      }
}

}  // namespace lattice
