// Oracle cases of pool, segments, argmax and gather.
#include <mlx/ops.h>

#include <cmath>
#include <span>

#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/routes/pool.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

using routes::ReduceMode;

enum class Operation { pool, segments, argmax, gather };

// Values from a few, so that maxima have ties.
Values coarse_values(Random& random, mx::Shape shape, mx::Dtype dtype) {
  Values v = random_values(random, shape, mx::float32);
  std::vector<float> rounded;
  for (double& x : v.exact) rounded.push_back(static_cast<float>(x = std::nearbyint(x * 4) / 4));
  v.array =
      mx::astype(mx::array(rounded.data(), std::move(shape), mx::float32), dtype, mx::Device::cpu);
  return v;
}

struct Edge {
  int64_t in, out;
  double weight;
};

// mode on the edges: what every formula of reduce_edges.h says. Inputs are x; of max_match and
// tie_share top, value and x. rows: which row has the maximum.
void expect(OracleCase& test, ReduceMode mode, bool rows, const std::vector<Edge>& edges,
            const std::vector<Values>& inputs, int64_t n_in, int64_t n_out, int64_t c) {
  std::vector<double> in_weight(static_cast<size_t>(n_in)), out_weight(static_cast<size_t>(n_out));
  for (const Edge& e : edges) {
    in_weight[static_cast<size_t>(e.in)] += e.weight;
    out_weight[static_cast<size_t>(e.out)] += e.weight;
  }
  test.magnitude.assign(static_cast<size_t>(n_out * c), 0.0);
  test.expected.assign(test.magnitude.size(), rows ? -1.0 : 0.0);
  std::vector<bool> seen(test.expected.size());
  std::vector<std::pair<double, double>> best(seen.size());  // by value, then by the smaller row
  for (const Edge& e : edges)
    for (int64_t j = 0; j < c; ++j) {
      const auto to = static_cast<size_t>(e.out * c + j), from = static_cast<size_t>(e.in * c + j);
      double& y = test.expected[to];
      if (mode == ReduceMode::max || mode == ReduceMode::min) {
        const double v = inputs[0].exact[from], row = static_cast<double>(e.in);
        const std::pair<double, double> found{mode == ReduceMode::max ? -v : v, row};
        if (!seen[to] || found < best[to]) best[to] = found, y = rows ? row : v;
        seen[to] = true;
        continue;
      }
      double v = 0;
      if (mode == ReduceMode::max_match || mode == ReduceMode::tie_share) {
        const bool same = inputs[0].exact[to] == inputs[1].exact[from];
        v = !same ? 0 : mode == ReduceMode::max_match ? inputs[2].exact[from] : 1;
      } else {
        v = e.weight * inputs[0].exact[from] /
            (mode == ReduceMode::mean_adjoint ? in_weight[static_cast<size_t>(e.in)] : 1);
      }
      y += v;
      test.magnitude[to] += std::fabs(v);
    }
  for (size_t i = 0; i < test.expected.size(); ++i) {
    const double w = out_weight[i / static_cast<size_t>(c)];
    if (mode == ReduceMode::mean && w > 0) test.expected[i] /= w, test.magnitude[i] /= w;
    if (mode == ReduceMode::tie_share) {
      test.expected[i] = test.expected[i] > 0 ? inputs[2].exact[i] / test.expected[i] : 0;
      test.magnitude[i] = std::fabs(test.expected[i]);
    }
  }
}

// An operation and its mode.
struct Asked {
  Operation operation;
  ReduceMode mode = ReduceMode::sum;
  std::string text() const {
    if (operation == Operation::gather) return "gather";
    return (operation == Operation::argmax ? "arg" : "") + std::string(routes::name(mode));
  }
};

OracleCase pool_case(Random& random, const Relation::Ptr& r, const Asked& asked, bool weighted,
                     int64_t c, mx::Dtype dtype, const std::string& what) {
  OracleCase test;
  const auto m = asked.mode;
  std::vector<float> weights;
  if (weighted)
    for (int64_t k = 0; k < r->n_kernels(); ++k)
      weights.push_back(0.125f * static_cast<float>(k + 1));
  const int n_in = static_cast<int>(r->n_in()), n_out = static_cast<int>(r->n_out()),
            channels = static_cast<int>(c);
  std::vector<Values> inputs = {coarse_values(random, {n_in, channels}, dtype)};
  if (m == ReduceMode::max_match)
    inputs = {coarse_values(random, {n_out, channels}, dtype), inputs[0],
              coarse_values(random, {n_in, channels}, dtype)};
  if (m == ReduceMode::tie_share)
    inputs = {coarse_values(random, {n_out, channels}, dtype), inputs[0],
              coarse_values(random, {n_out, channels}, dtype)};
  std::vector<Edge> edges;
  for (int64_t e = 0; e < r->edge_count(); ++e) {
    const int32_t k = r->edges().kernel_ids.data<int32_t>()[e];
    edges.push_back({r->edges().in_rows.data<int32_t>()[e], r->edges().out_rows.data<int32_t>()[e],
                     weighted ? double{weights[static_cast<size_t>(k)]} : 1.0});
  }
  const mx::array& x = inputs.back().array;
  if (asked.operation == Operation::argmax) {
    test.question = question(
        routes::argmax_rows(),
        {.x = x, .relation = r, .groups = {}, .minimum = m == ReduceMode::min, .stream = {}});
  } else {
    routes::PoolAsked pool{x, r, m, weights};
    if (inputs.size() == 3) pool.match = {inputs[0].array, inputs[1].array};
    test.question = question(routes::pool_rows(), pool);
  }
  expect(test, m, asked.operation == Operation::argmax, edges, inputs, n_in, n_out, c);
  test.label = what + " " + asked.text() + (weighted ? " weighted " : " ") + std::to_string(c) +
               " " + graph::dtype_name(dtype);
  return test;
}

// n rows in 9 groups, one of them empty, some rows in none.
OracleCase rows_case(Random& random, const Asked& asked, bool sorted, int64_t n, int64_t c,
                     mx::Dtype dtype) {
  constexpr int64_t kGroups = 9;
  cpu::Buffer<int32_t> group_of(n);
  for (int64_t r = 0; r < n; ++r)
    group_of[r] = static_cast<int32_t>(sorted ? r * (kGroups - 1) / n : random.below(kGroups) - 1);
  std::vector<Edge> edges;
  const bool gather = asked.operation == Operation::gather;
  for (int64_t r = 0; r < n; ++r)
    if (group_of[r] >= 0) edges.push_back({gather ? group_of[r] : r, gather ? r : group_of[r], 1});
  OracleCase test;
  const int64_t n_in = gather ? kGroups : n, n_out = gather ? n : kGroups;
  const Values x = coarse_values(random, {static_cast<int>(n_in), static_cast<int>(c)}, dtype);
  expect(test, asked.mode, asked.operation == Operation::argmax, edges, {x}, n_in, n_out, c);
  if (gather) {
    for (int64_t r = 0; r < n; ++r)
      if (group_of[r] < 0)
        for (int64_t j = 0; j < c; ++j) test.expected[static_cast<size_t>(r * c + j)] = -1.5;
  }
  const RowGroups::Ptr groups = RowGroups::create(std::move(group_of), kGroups);
  const bool minimum = asked.mode == ReduceMode::min;
  if (gather)
    test.question = question(routes::gather_rows(), {x.array, groups, -1.5f});
  else if (asked.operation == Operation::argmax)
    test.question = question(
        routes::argmax_rows(),
        {.x = x.array, .relation = {}, .groups = groups, .minimum = minimum, .stream = {}});
  else
    test.question = question(routes::segments_rows(), {x.array, groups, asked.mode});
  test.label = asked.text() + (sorted ? " sorted " : " ") + std::to_string(n) + " rows " +
               std::to_string(c) + " " + graph::dtype_name(dtype);
  return test;
}

}  // namespace

void add_pool_cases(std::vector<OracleCase>& cases) {
  static constexpr RelationKind kKinds[] = {RelationKind::forward, RelationKind::target_transposed,
                                            RelationKind::custom};
  static constexpr Operation kP = Operation::pool, kS = Operation::segments, kA = Operation::argmax;
  static constexpr Asked kPool[] = {
      {kP, ReduceMode::sum},       {kP, ReduceMode::mean}, {kP, ReduceMode::mean_adjoint},
      {kP, ReduceMode::max},       {kP, ReduceMode::min},  {kP, ReduceMode::max_match},
      {kP, ReduceMode::tie_share}, {kA, ReduceMode::max},  {kA, ReduceMode::min}};
  static constexpr Asked kWeighted[] = {
      {kP, ReduceMode::sum}, {kP, ReduceMode::mean}, {kP, ReduceMode::mean_adjoint}};
  static constexpr Asked kRows[] = {
      {kS, ReduceMode::sum}, {kS, ReduceMode::mean}, {kS, ReduceMode::max}, {kS, ReduceMode::min},
      {kA, ReduceMode::max}, {kA, ReduceMode::min},  {Operation::gather}};
  Random random{7};
  const auto add = [&](OracleCase test, mx::Dtype dtype) {
    test.dtype = dtype;
    cases.push_back(std::move(test));
  };
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    for (const RelationKind kind : kKinds) {
      const Relation::Ptr r = make_relation(random, kind, 60);
      for (const int64_t c : {int64_t{1}, int64_t{5}, int64_t{64}, int64_t{70}}) {
        for (const Asked& mode : kPool) {
          add(pool_case(random, r, mode, false, c, dtype, kind_name(kind)), dtype);
          if (c == 5)
            add(pool_case(random, r->reversed(), mode, false, c, dtype,
                          std::string("reversed ") + kind_name(kind)),
                dtype);
        }
        for (const Asked& mode : kWeighted)
          add(pool_case(random, r, mode, true, c, dtype, kind_name(kind)), dtype);
      }
    }
    const Relation::Ptr none = relate(RelationKind::forward, random_coords(random, 0, 3),
                                      KernelSpec(), std::nullopt, "oracle_cases");
    for (const Asked& mode : std::span(kPool).first(8))
      add(pool_case(random, none, mode, false, 5, dtype, "empty"), dtype);
    for (const Asked& mode : kRows)
      for (const bool sorted : {false, true})
        for (const int64_t c : {1, 5, 64})
          for (const int64_t n : {0, 70, 2600}) {  // the last: groups of 290 rows and more
            if (n > 70 && c != 5) continue;
            add(rows_case(random, mode, sorted, n, c, dtype), dtype);
          }
  }
}

}  // namespace lattice
