#include "lattice/ops/conv_core.h"

#include <mlx/ops.h>

#include <stdexcept>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

void fail(const std::string& operation, const std::string& message) {
  throw std::invalid_argument("[" + operation + "] " + message);
}

void check_features(const std::string& op, const char* what, const mx::array& a, int64_t rows,
                    const mx::array& like) {
  if (a.ndim() != 2 || a.shape(0) != rows)
    fail(op, std::string(what) + " must have shape (" + std::to_string(rows) + ", C), got " +
                 shape_text(a.shape()));
  graph::visit_float(a.dtype(), [](auto) {}, op);
  if (a.dtype() != like.dtype())
    fail(op, std::string(what) + " must have the dtype of the features, got " +
                 graph::dtype_name(a.dtype()) + " and " + graph::dtype_name(like.dtype()));
}

void check_groups(const std::string& op, int64_t groups, int64_t c_in, int64_t c_out) {
  if (groups < 1 || c_in % groups != 0 || c_out % groups != 0)
    fail(op, "groups must be >= 1 and divide both channel counts, got groups " +
                 std::to_string(groups) + ", C_in " + std::to_string(c_in) + ", C_out " +
                 std::to_string(c_out));
}

Call make_call(const char* operation, graph::Arrays inputs, const Relation::Ptr& relation,
               int64_t c_in, int64_t c_out, int64_t groups, mx::StreamOrDevice s) {
  Call call;
  call.operation = operation;
  call.dtype = inputs[0].dtype();
  call.inputs = std::move(inputs);
  call.relation = relation;
  call.c_in = c_in;
  call.c_out = c_out;
  call.groups = groups;
  call.stream = s;
  return call;
}

// (N, C) -> (C,): our kernel on the CPU, mx::sum in float32 on a GPU.
mx::array launch_sum_rows(const mx::array& x, mx::StreamOrDevice s) {
  if (graph::on_gpu(s)) {
    // MLX 0.32.4 on the CPU may never end a sum over no rows.
    if (x.shape(0) == 0) return mx::zeros({x.shape(1)}, x.dtype(), s);
    return mx::astype(mx::sum(mx::astype(x, mx::float32, s), 0, false, s), x.dtype(), s);
  }
  return graph::cpu_call(
      "sum_rows", "", {graph::row_contiguous(x, s)}, {{{x.shape(1)}, x.dtype()}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::sum_rows(float_type_of(in[0].dtype), in[0].data, in[0].shape[0], in[0].shape[1],
                      out[0].data);
      },
      s)[0];
}

// conv without the checks; `operation` is "conv" or "linear".
mx::array conv_of(const char* operation, const graph::Arrays& inputs, const Relation::Ptr& relation,
                  int64_t groups, mx::StreamOrDevice s) {
  const int64_t c_in = inputs[0].shape(1), c_out = inputs[1].shape(2);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run(make_call(operation, in, relation, c_in, c_out, groups, s))};
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
               const std::optional<mx::array>& bias, int64_t groups, mx::StreamOrDevice s) {
  check_features("conv", "x", x, relation->n_in(), x);
  const int64_t c_in = x.shape(1);
  if (w.ndim() != 3 || w.shape(0) != relation->n_kernels() || w.shape(1) * groups != c_in)
    fail("conv", "w must have shape (" + std::to_string(relation->n_kernels()) + ", " +
                     std::to_string(groups > 0 ? c_in / groups : 0) + ", C_out), got " +
                     shape_text(w.shape()));
  check_groups("conv", groups, c_in, w.shape(2));
  if (w.dtype() != x.dtype())
    fail("conv", "w must have the dtype of the features, got " + graph::dtype_name(w.dtype()) +
                     " and " + graph::dtype_name(x.dtype()));
  graph::Arrays inputs = {x, w};
  if (bias) {
    if (bias->ndim() != 1 || bias->shape(0) != w.shape(2))
      fail("conv", "bias must have shape (" + std::to_string(w.shape(2)) + ",), got " +
                       shape_text(bias->shape()));
    inputs.push_back(mx::astype(*bias, x.dtype(), s));
  }
  return conv_of("conv", inputs, relation, groups, s);
}

mx::array outer(const mx::array& x, const mx::array& g, const Relation::Ptr& relation,
                int64_t groups, mx::StreamOrDevice s) {
  check_features("outer", "x", x, relation->n_in(), x);
  check_features("outer", "g", g, relation->n_out(), x);
  const int64_t c_in = x.shape(1), c_out = g.shape(1);
  check_groups("outer", groups, c_in, c_out);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run(make_call("outer", in, relation, c_in, c_out, groups, s))};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {conv_of("conv", {in[1], transposed_weight(ct[0], groups, s)}, relation->reversed(),
                    groups, s),
            conv_of("conv", {in[0], ct[0]}, relation, groups, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    return {mx::add(outer(t[0], in[1], relation, groups, s),
                    outer(in[0], t[1], relation, groups, s), s)};
  };
  return graph::differentiable({x, g}, forward, vjp, jvp)[0];
}

mx::array matmul_rows(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias,
                      mx::StreamOrDevice s) {
  if (x.ndim() != 2)
    fail("linear", "features must have shape (N, C_in), got " + shape_text(x.shape()));
  graph::visit_float(x.dtype(), [](auto) {}, "linear");
  if (w.ndim() != 2 || w.shape(0) != x.shape(1))
    fail("linear", "weight must have " + std::to_string(x.shape(1)) + " input channels, got " +
                       std::to_string(w.shape(0)));
  if (w.dtype() != x.dtype())
    fail("linear", "weight must have the dtype of the features, got " +
                       graph::dtype_name(w.dtype()) + " and " + graph::dtype_name(x.dtype()));
  graph::Arrays inputs = {x, mx::expand_dims(w, 0, s)};
  if (bias) {
    if (bias->ndim() != 1 || bias->shape(0) != w.shape(1))
      fail("linear", "bias must have shape (" + std::to_string(w.shape(1)) + ",), got " +
                         shape_text(bias->shape()));
    inputs.push_back(mx::astype(*bias, x.dtype(), s));
  }
  return conv_of("linear", inputs, Relation::identity(x.shape(0)), 1, s);
}

mx::array sum_rows(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const graph::Arrays& in) -> graph::Arrays {
    return {launch_sum_rows(in[0], s)};
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
