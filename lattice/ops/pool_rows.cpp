#include "lattice/ops/pool_rows.h"

#include <mlx/ops.h>

#include <stdexcept>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

Call make_call(const char* mode, graph::Arrays inputs, const Relation::Ptr& relation,
               mx::StreamOrDevice s) {
  Call call;
  call.operation = "pool";
  call.mode = mode;
  call.c_in = call.c_out = inputs[0].shape(1);
  call.dtype = inputs[0].dtype();
  call.inputs = std::move(inputs);
  call.relation = relation;
  call.stream = s;
  return call;
}

const char* mode_name(PoolMode mode) {
  static constexpr const char* kNames[] = {"sum", "mean", "spread", "max", "min"};
  return kNames[static_cast<int>(mode)];
}

// y[o, c] = sum over edges with a[o, c] == b[i, c] of x[i, c]. Linear in x; a and b are constants.
mx::array match(const mx::array& a, const mx::array& b, const mx::array& x, const Relation::Ptr& r,
                mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run(make_call("match", {a, b, in[0]}, r, s))};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {match(b, a, ct[0], r->reversed(), s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {match(a, b, t[0], r, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

// y[o, c] = g[o, c] / the number of edges with a[o, c] == b[i, c]. Linear in g and its own adjoint.
mx::array share(const mx::array& a, const mx::array& b, const mx::array& g, const Relation::Ptr& r,
                mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run(make_call("share", {a, b, in[0]}, r, s))};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {share(a, b, ct[0], r, s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {share(a, b, t[0], r, s)};
  };
  return graph::differentiable({g}, forward, vjp, jvp)[0];
}

mx::array argmax(const mx::array& x, const Relation::Ptr& r, PoolMode mode, mx::StreamOrDevice s) {
  Call call = make_call(mode_name(mode), {x}, r, s);
  call.operation = "argmax";
  return run(call);
}

// Shares are sums of a few quotients: in float32, so that they are rounded once.
mx::array max_gradient(const mx::array& x, const mx::array& y, const mx::array& dy,
                       const Relation::Ptr& r, PoolMode mode, Ties ties, mx::StreamOrDevice s) {
  if (ties == Ties::first) return scatter_by_index(dy, argmax(x, r, mode, s), x.shape(0), s);
  const auto wide = [&](const mx::array& a) { return mx::astype(a, mx::float32, s); };
  const mx::array top = wide(mx::stop_gradient(y, s)), rows = wide(mx::stop_gradient(x, s));
  const mx::array part = ties == Ties::all ? wide(dy) : share(top, rows, wide(dy), r, s);
  return mx::astype(match(rows, top, part, r->reversed(), s), x.dtype(), s);
}

}  // namespace

mx::array pool_rows(const mx::array& x, const Relation::Ptr& relation, PoolMode mode,
                    const std::vector<float>& offset_weights, mx::StreamOrDevice s, Ties ties) {
  const bool extreme = mode == PoolMode::max || mode == PoolMode::min;
  if (x.ndim() != 2 || x.shape(0) != relation->n_in())
    throw std::invalid_argument("[pool] features must have shape (" +
                                std::to_string(relation->n_in()) + ", C), got " +
                                shape_text(x.shape()));
  graph::visit_float(x.dtype(), [](auto) {}, "pool");
  if (!offset_weights.empty() &&
      static_cast<int64_t>(offset_weights.size()) != relation->n_kernels())
    throw std::invalid_argument("[pool] offset_weights must have " +
                                std::to_string(relation->n_kernels()) + " values, got " +
                                std::to_string(offset_weights.size()));
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call = make_call(mode_name(mode), in, relation, s);
    call.offset_weights = offset_weights;
    return {run(call)};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays& y) -> graph::Arrays {
    if (extreme) return {max_gradient(in[0], y[0], ct[0], relation, mode, ties, s)};
    const PoolMode back = mode == PoolMode::mean     ? PoolMode::spread
                          : mode == PoolMode::spread ? PoolMode::mean
                                                     : PoolMode::sum;
    return {pool_rows(ct[0], relation->reversed(), back, offset_weights, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    if (extreme) return {gather_by_index(t[0], argmax(in[0], relation, mode, s), s)};
    return {pool_rows(t[0], relation, mode, offset_weights, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
