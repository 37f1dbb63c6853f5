#include "lattice/ops/reduce_edges.h"

#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

using routes::ReduceMode;

ReduceMode mode_of(PoolMode mode) {
  static constexpr ReduceMode kModes[] = {ReduceMode::sum, ReduceMode::mean,
                                          ReduceMode::mean_adjoint, ReduceMode::max,
                                          ReduceMode::min};
  return kModes[static_cast<int>(mode)];
}

mx::array launch(const routes::PoolAsked& asked) { return routes::run(routes::pool_rows(), asked); }

// y[o, c] = sum over edges with a[o, c] == b[i, c] of x[i, c]. Linear in x; a and b are constants.
mx::array max_match(const mx::array& a, const mx::array& b, const mx::array& x,
                    const Relation::Ptr& r, mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {launch({in[0], r, ReduceMode::max_match, {}, {{a, b}}, s})};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {max_match(b, a, ct[0], r->reversed(), s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {max_match(a, b, t[0], r, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

// y[o, c] = g[o, c] / the number of edges with a[o, c] == b[i, c]. Linear in g and its own adjoint.
mx::array tie_share(const mx::array& a, const mx::array& b, const mx::array& g,
                    const Relation::Ptr& r, mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {launch({in[0], r, ReduceMode::tie_share, {}, {{a, b}}, s})};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {tie_share(a, b, ct[0], r, s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {tie_share(a, b, t[0], r, s)};
  };
  return graph::differentiable({g}, forward, vjp, jvp)[0];
}

mx::array argmax(const mx::array& x, const Relation::Ptr& r, PoolMode mode, mx::StreamOrDevice s) {
  return routes::run(routes::argmax_rows(),
                     {.x = x, .relation = r, .minimum = mode == PoolMode::min, .stream = s});
}

// Shares are sums of a few quotients: in float32, so that they are rounded once.
mx::array max_gradient(const mx::array& x, const mx::array& y, const mx::array& dy,
                       const Relation::Ptr& r, PoolMode mode, Ties ties, mx::StreamOrDevice s) {
  if (ties == Ties::first) return scatter_by_index(dy, argmax(x, r, mode, s), x.shape(0), s);
  const mx::array top = as_float32(mx::stop_gradient(y, s), s),
                  rows = as_float32(mx::stop_gradient(x, s), s);
  const mx::array part =
      ties == Ties::all ? as_float32(dy, s) : tie_share(top, rows, as_float32(dy, s), r, s);
  return mx::astype(max_match(rows, top, part, r->reversed(), s), x.dtype(), s);
}

}  // namespace

mx::array reduce_edges(const mx::array& x, const Relation::Ptr& relation, PoolMode mode,
                       const std::vector<float>& offset_weights, mx::StreamOrDevice s, Ties ties,
                       std::string_view caller) {
  const bool extreme = mode == PoolMode::max || mode == PoolMode::min;
  check_features(caller, "features", x, relation->n_in());
  if (!offset_weights.empty() &&
      static_cast<int64_t>(offset_weights.size()) != relation->n_kernels())
    fail(caller, "offset_weights must have " + std::to_string(relation->n_kernels()) +
                     " values, got " + std::to_string(offset_weights.size()));
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {launch({in[0], relation, mode_of(mode), offset_weights, {}, s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays& y) -> graph::Arrays {
    if (extreme) return {max_gradient(in[0], y[0], ct[0], relation, mode, ties, s)};
    const PoolMode back = mode == PoolMode::mean           ? PoolMode::mean_adjoint
                          : mode == PoolMode::mean_adjoint ? PoolMode::mean
                                                           : PoolMode::sum;
    return {reduce_edges(ct[0], relation->reversed(), back, offset_weights, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    if (extreme) return {gather_by_index(t[0], argmax(in[0], relation, mode, s), s)};
    return {reduce_edges(t[0], relation, mode, offset_weights, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
