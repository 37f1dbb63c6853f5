#include "lattice/ops/conv_core.h"

#include <mlx/ops.h>

#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

void check_groups(std::string_view op, int64_t groups, int64_t c_in, int64_t c_out) {
  if (groups < 1 || c_in % groups != 0 || c_out % groups != 0)
    fail(op, "groups must be >= 1 and divide both channel counts, got groups " +
                 std::to_string(groups) + ", C_in " + std::to_string(c_in) + ", C_out " +
                 std::to_string(c_out));
}

Call make_call(Operation operation, graph::Arrays inputs, const Relation::Ptr& relation,
               int64_t c_out, int64_t groups, mx::StreamOrDevice s) {
  Call call{
      .operation = operation, .relation = relation, .c_out = c_out, .groups = groups, .stream = s};
  call.dtype = inputs[0].dtype();
  call.c_in = inputs[0].shape(1);
  call.inputs = std::move(inputs);
  return call;
}

// conv without the checks; `operation` is conv or linear; inputs are x, w and, if any, the bias.
mx::array conv_of(Operation operation, const graph::Arrays& inputs, const Relation::Ptr& relation,
                  int64_t groups, mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call = make_call(operation, in, relation, in[1].shape(2), groups, s);
    call.payload = Weights{.has_bias = in.size() == 3};
    return {run(call)};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    graph::Arrays grads = {conv_of(operation, {ct[0], transposed_weight(in[1], groups, s)},
                                   relation->reversed(), groups, s),
                           outer(in[0], ct[0], relation, groups, s)};
    if (in.size() == 3) grads.push_back(sum_rows(ct[0], s));
    return grads;
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    mx::array sum = mx::add(conv_of(operation, {t[0], in[1]}, relation, groups, s),
                            conv_of(operation, {in[0], t[1]}, relation, groups, s), s);
    return {in.size() == 3 ? mx::add(sum, t[2], s) : sum};
  };
  return graph::differentiable(inputs, forward, vjp, jvp)[0];
}

}  // namespace

mx::array conv(const mx::array& x, const mx::array& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias, int64_t groups, mx::StreamOrDevice s,
               std::string_view caller) {
  check_features(caller, "x", x, relation->n_in());
  const int64_t c_in = x.shape(1);
  if (w.ndim() != 3 || w.shape(0) != relation->n_kernels() || w.shape(1) * groups != c_in)
    fail(caller, "weight must have shape (" + std::to_string(relation->n_kernels()) + ", " +
                     std::to_string(groups > 0 ? c_in / groups : 0) + ", C_out), got " +
                     shape_text(w.shape()));
  check_groups(caller, groups, c_in, w.shape(2));
  check_same_dtype(caller, "weight", w.dtype(), x.dtype());
  check_bias(caller, bias, w.shape(2));
  graph::Arrays inputs = {x, w};
  if (bias) inputs.push_back(mx::astype(*bias, x.dtype(), s));
  return conv_of(Operation::conv, inputs, relation, groups, s);
}

mx::array outer(const mx::array& x, const mx::array& g, const Relation::Ptr& relation,
                int64_t groups, mx::StreamOrDevice s) {
  check_features("outer", "x", x, relation->n_in());
  check_features("outer", "g", g, relation->n_out());
  check_same_dtype("outer", "g", g.dtype(), x.dtype());
  const int64_t c_in = x.shape(1), c_out = g.shape(1);
  check_groups("outer", groups, c_in, c_out);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run(make_call(Operation::outer, in, relation, c_out, groups, s))};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {conv_of(Operation::conv, {in[1], transposed_weight(ct[0], groups, s)},
                    relation->reversed(), groups, s),
            conv_of(Operation::conv, {in[0], ct[0]}, relation, groups, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    return {mx::add(outer(t[0], in[1], relation, groups, s),
                    outer(in[0], t[1], relation, groups, s), s)};
  };
  return graph::differentiable({x, g}, forward, vjp, jvp)[0];
}

mx::array matmul_rows(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias,
                      mx::StreamOrDevice s, std::string_view caller) {
  check_features(caller, "features", x);
  if (w.ndim() != 2 || w.shape(0) != x.shape(1))
    fail(caller, "weight must have " + std::to_string(x.shape(1)) + " input channels, got " +
                     std::to_string(w.shape(0)));
  check_same_dtype(caller, "weight", w.dtype(), x.dtype());
  check_bias(caller, bias, w.shape(1));
  graph::Arrays inputs = {x, mx::expand_dims(w, 0, s)};
  if (bias) inputs.push_back(mx::astype(*bias, x.dtype(), s));
  return conv_of(Operation::linear, inputs, Relation::identity(x.shape(0)), 1, s);
}

mx::array sum_rows(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const graph::Arrays& in) -> graph::Arrays {
    return {run({.operation = Operation::sum_rows,
                 .inputs = in,
                 .c_in = in[0].shape(1),
                 .c_out = in[0].shape(1),
                 .dtype = in[0].dtype(),
                 .payload = Reduce{},
                 .stream = s})};
  };
  const auto vjp = [s](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {mx::broadcast_to(ct[0], in[0].shape(), s)};
  };
  const auto jvp = [s](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {sum_rows(t[0], s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
