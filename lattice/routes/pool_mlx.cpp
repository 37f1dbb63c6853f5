// pool, segments and gather from plain MLX operations.
#include <mlx/ops.h>

#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {
namespace {

// Rows of values (E, C) reduced into n rows that start at `start`, in float32: sum from 0, max from
// -inf, min from inf.
mx::array scatter_rows(const mx::array& values, const mx::array& to, int n, mx::StreamOrDevice s,
                       float start = 0) {
  const int c = values.shape(1);
  const mx::array y = mx::full({n, c}, start, mx::float32, s);
  if (values.size() == 0) return y;
  const mx::array updates = mx::expand_dims(values, 1, s);
  if (start == 0) return mx::scatter_add(y, {to}, updates, {0}, s);
  return start < 0 ? mx::scatter_max(y, {to}, updates, {0}, s)
                   : mx::scatter_min(y, {to}, updates, {0}, s);
}

// value / total where total > 0, else 0.
mx::array quotient(const mx::array& value, const mx::array& total, mx::StreamOrDevice s) {
  const mx::array zero(0.0f), one(1.0f);
  const mx::array present = mx::greater(total, zero, s);
  return mx::where(present, mx::divide(value, mx::where(present, total, one, s), s), zero, s);
}

// sum, mean or max of values at `to`; `weights` (E, 1).
mx::array reduce(const mx::array& values, const mx::array& to, const mx::array& weights, int n,
                 ReduceMode mode, mx::StreamOrDevice s) {
  const mx::array total = scatter_rows(weights, to, n, s);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (mode == ReduceMode::max || mode == ReduceMode::min)
    return mx::where(mx::greater(total, mx::array(0.0f), s),
                     scatter_rows(values, to, n, s, mode == ReduceMode::max ? -kInf : kInf),
                     mx::array(0.0f), s);
  const mx::array sums = scatter_rows(mx::multiply(values, weights, s), to, n, s);
  return mode == ReduceMode::mean ? quotient(sums, total, s) : sums;
}

}  // namespace

mx::array pool_with_mlx(const PoolAsked& asked) {
  const auto s = asked.stream;
  const Relation& r = *asked.relation;
  const Edges& edges = r.edges();
  const ReduceMode mode = asked.mode;
  const int n_in = static_cast<int>(r.n_in()), n_out = static_cast<int>(r.n_out());
  const int n_edges = static_cast<int>(r.edge_count());
  if (n_edges == 0) return mx::zeros({n_out, asked.x.shape(1)}, asked.x.dtype(), s);
  const auto taken = [&](const mx::array& a, const mx::array& rows) {
    return mx::take(as_float32(a, s), rows, 0, s);
  };
  mx::array y = asked.x;
  if (asked.match) {
    const mx::array same = mx::equal(taken(asked.match->top, edges.out_rows),
                                     taken(asked.match->value, edges.in_rows), s);
    if (mode == ReduceMode::max_match) {
      const mx::array values = mx::where(same, taken(asked.x, edges.in_rows), mx::array(0.0f), s);
      y = scatter_rows(values, edges.out_rows, n_out, s);
    } else {
      y = quotient(as_float32(asked.x, s),
                   scatter_rows(as_float32(same, s), edges.out_rows, n_out, s), s);
    }
  } else {
    mx::array w = mx::ones({n_edges, 1}, mx::float32, s);
    if (!asked.offset_weights.empty() && mode != ReduceMode::max && mode != ReduceMode::min) {
      const mx::array all(asked.offset_weights.data(),
                          {static_cast<int>(asked.offset_weights.size()), 1}, mx::float32);
      w = mx::take(all, edges.kernel_ids, 0, s);
    }
    mx::array values = taken(asked.x, edges.in_rows);
    if (mode == ReduceMode::mean_adjoint)
      values = mx::divide(
          values, mx::take(scatter_rows(w, edges.in_rows, n_in, s), edges.in_rows, 0, s), s);
    y = reduce(values, edges.out_rows, w, n_out, mode, s);
  }
  return mx::astype(y, asked.x.dtype(), s);
}

mx::array segments_with_mlx(const SegmentsAsked& asked) {
  const auto s = asked.stream;
  const RowGroups& groups = *asked.groups;
  const int n = static_cast<int>(groups.n_rows()), n_groups = static_cast<int>(groups.n_groups());
  if (n == 0 || n_groups == 0) return mx::zeros({n_groups, asked.x.shape(1)}, asked.x.dtype(), s);
  // Rows of no group go to a row behind the last.
  const mx::array to(groups.group_of(), {n}, mx::int32);
  const mx::array safe = mx::where(mx::less(to, mx::array(0), s), mx::array(n_groups), to, s);
  const mx::array y = reduce(as_float32(asked.x, s), safe, mx::ones({n, 1}, mx::float32, s),
                             n_groups + 1, asked.mode, s);
  return mx::astype(mx::slice(y, {0, 0}, {n_groups, y.shape(1)}, s), asked.x.dtype(), s);
}

mx::array gather_with_mlx(const GatherAsked& asked) {
  const auto s = asked.stream;
  const RowGroups& groups = *asked.groups;
  const int n = static_cast<int>(groups.n_rows());
  const mx::array fill = mx::array(asked.fill, asked.x.dtype());
  if (n == 0 || asked.x.size() == 0) return mx::full({n, asked.x.shape(1)}, fill, s);
  const mx::array rows(groups.group_of(), {n}, mx::int32);
  const mx::array present = mx::expand_dims(mx::greater_equal(rows, mx::array(0), s), 1, s);
  return mx::where(present, mx::take(asked.x, mx::maximum(rows, mx::array(0), s), 0, s), fill, s);
}

}  // namespace lattice::routes
