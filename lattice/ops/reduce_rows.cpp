#include "lattice/ops/reduce_rows.h"

#include <mlx/ops.h>

#include <algorithm>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

using routes::ReduceMode;

ReduceMode mode_of(Reduction r) {
  static constexpr ReduceMode kModes[] = {ReduceMode::sum, ReduceMode::mean, ReduceMode::max,
                                          ReduceMode::min};
  return kModes[static_cast<int>(r)];
}

// (G, C) int32: the smallest row of each group that has the maximum or minimum, -1 where there is
// none.
mx::array argmax_rows(const mx::array& x, const RowGroups::Ptr& groups, Reduction kind,
                      mx::StreamOrDevice s) {
  return routes::run(routes::argmax_rows(),
                     {.x = x, .groups = groups, .minimum = kind == Reduction::min, .stream = s});
}

// The gradient of max or min: dy to the rows that equal their group's value.
mx::array max_gradient(const mx::array& x, const mx::array& y, const mx::array& dy,
                       const RowGroups::Ptr& groups, Reduction kind, Ties ties,
                       mx::StreamOrDevice s) {
  if (ties == Ties::first)
    return scatter_by_index(dy, argmax_rows(x, groups, kind, s), x.shape(0), s);
  const mx::array same = mx::equal(x, gather_rows(y, groups, 0, s), s);
  mx::array part = as_float32(dy, s);
  if (ties == Ties::split) {
    const mx::array count = reduce_rows(as_float32(same, s), groups, Reduction::sum, s);
    part = mx::divide(part, mx::maximum(count, mx::array(1.0f), s), s);
  }
  return mx::astype(mx::where(same, gather_rows(part, groups, 0, s), mx::array(0.0f), s), x.dtype(),
                    s);
}

}  // namespace

RowGroups::Ptr groups_of(const mx::array& group_of, int64_t n_groups) {
  cpu::Buffer<int32_t> copy(static_cast<int64_t>(group_of.size()));
  if (!copy.empty()) std::copy_n(group_of.data<int32_t>(), copy.size(), copy.begin());
  return RowGroups::create(std::move(copy), n_groups);
}

Reduction parse_reduction(std::string_view name, std::string_view operation,
                          std::string_view argument) {
  if (name == "sum") return Reduction::sum;
  if (name == "mean" || name == "avg") return Reduction::mean;
  if (name == "max") return Reduction::max;
  fail(operation,
       std::string(argument) + " must be sum, mean (avg) or max, got '" + std::string(name) + "'");
}

mx::array reduce_rows(const mx::array& x, const RowGroups::Ptr& groups, Reduction reduction,
                      mx::StreamOrDevice s, Ties ties) {
  const bool extreme = reduction == Reduction::max || reduction == Reduction::min;
  check_features("reduce_rows", "features", x, groups->n_rows());
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::segments_rows(), {in[0], groups, mode_of(reduction), s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays& y) -> graph::Arrays {
    if (reduction == Reduction::sum) return {gather_rows(ct[0], groups, 0, s)};
    if (extreme)
      return {max_gradient(in[0], mx::stop_gradient(y[0], s), ct[0], groups, reduction, ties, s)};
    const mx::array counts = mx::maximum(groups->counts(), mx::array(1.0f), s);
    return {gather_rows(mx::astype(mx::divide(as_float32(ct[0], s), counts, s), in[0].dtype(), s),
                        groups, 0, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    if (!extreme) return {reduce_rows(t[0], groups, reduction, s)};
    return {gather_by_index(t[0], argmax_rows(in[0], groups, reduction, s), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

mx::array gather_rows(const mx::array& y, const RowGroups::Ptr& groups, float fill,
                      mx::StreamOrDevice s) {
  check_features("gather_rows", "features", y, groups->n_groups());
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::gather_rows(), {in[0], groups, fill, s})};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {reduce_rows(ct[0], groups, Reduction::sum, s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {gather_rows(t[0], groups, 0, s)};
  };
  return graph::differentiable({y}, forward, vjp, jvp)[0];
}

mx::array gather_by_index(const mx::array& t, const mx::array& rows, mx::StreamOrDevice s) {
  if (t.size() == 0) return mx::zeros(rows.shape(), t.dtype(), s);
  const mx::array found = mx::greater_equal(rows, mx::array(0), s);
  const mx::array taken = mx::take_along_axis(t, mx::maximum(rows, mx::array(0), s), 0, s);
  return mx::where(found, taken, mx::zeros({1}, t.dtype(), s), s);
}

mx::array scatter_by_index(const mx::array& g, const mx::array& rows, int n, mx::StreamOrDevice s) {
  const mx::array zeros = mx::zeros({n, g.shape(1)}, mx::float32, s);
  if (zeros.size() == 0 || g.size() == 0) return mx::astype(zeros, g.dtype(), s);
  const mx::array found = mx::greater_equal(rows, mx::array(0), s);
  const mx::array given = mx::where(found, as_float32(g, s), mx::array(0.0f), s);
  return mx::astype(mx::scatter_add_axis(zeros, mx::maximum(rows, mx::array(0), s), given, 0, s),
                    g.dtype(), s);
}

}  // namespace lattice
