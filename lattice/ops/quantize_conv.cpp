#include "lattice/ops/quantize_conv.h"

#include <mlx/ops.h>

#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/ops/conv_core.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

// Inputs: x, codes, scales, biases and, if any, the bias.
mx::array conv_of(Operation operation, const graph::Arrays& inputs, const Packing& packing,
                  int64_t c_out, const Relation::Ptr& relation, int64_t groups,
                  mx::StreamOrDevice s) {
  const int64_t c_in = inputs[0].shape(1);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call{.operation = operation,
              .inputs = in,
              .relation = relation,
              .c_in = c_in,
              .c_out = c_out,
              .groups = groups,
              .dtype = in[0].dtype(),
              .stream = s};
    call.payload = Weights{packing, in.size() == 5};
    return {run(call)};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    Packing back = packing;
    back.transposed = !packing.transposed;
    graph::Arrays grads = {conv_of(operation, {ct[0], in[1], in[2], in[3]}, back, c_in,
                                   relation->reversed(), groups, s),
                           mx::zeros_like(in[1], s), mx::zeros_like(in[2], s),
                           mx::zeros_like(in[3], s)};
    if (in.size() == 5) grads.push_back(sum_rows(ct[0], s));
    return grads;
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    const mx::array y =
        conv_of(operation, {t[0], in[1], in[2], in[3]}, packing, c_out, relation, groups, s);
    return {in.size() == 5 ? mx::add(y, t[4], s) : y};
  };
  return graph::differentiable(inputs, forward, vjp, jvp)[0];
}

mx::array checked_conv(Operation operation, std::string_view op, const mx::array& x,
                       const QuantizedWeight& w, const Relation::Ptr& relation,
                       const std::optional<mx::array>& bias, int64_t groups, mx::StreamOrDevice s) {
  check_features(op, "x", x, relation->n_in());
  if (w.dtype() == mx::float32 && (x.dtype() == mx::float16 || x.dtype() == mx::bfloat16))
    return mx::astype(  // float32 scales stay exact
        checked_conv(operation, op, mx::astype(x, mx::float32, s), w, relation, bias, groups, s),
        x.dtype(), s);
  if (x.dtype() != w.dtype())
    fail(op, "scales of a packed weight must have the dtype of the features, got " +
                 graph::dtype_name(w.dtype()) + " and " + graph::dtype_name(x.dtype()));
  if (groups < 1 || w.out_channels() % groups != 0)
    fail(op, "groups must be >= 1 and divide C_out = " + std::to_string(w.out_channels()) +
                 ", got " + std::to_string(groups));
  if (w.in_channels() * groups != x.shape(1))
    fail(op, "a packed weight for " + std::to_string(x.shape(1)) +
                 " input channels was expected, got " + std::to_string(w.in_channels()) + " * " +
                 std::to_string(groups) + " groups");
  if (w.n_k() != relation->n_kernels())
    fail(op, "a packed weight with " + std::to_string(relation->n_kernels()) +
                 " offsets was expected, got " + std::to_string(w.n_k()));
  check_bias(op, bias, w.out_channels());
  graph::Arrays inputs = {x, w.weight(), w.scales(), w.biases()};
  if (bias) inputs.push_back(mx::astype(*bias, x.dtype(), s));
  return conv_of(operation, inputs, {w.bits(), w.group_size(), false}, w.out_channels(), relation,
                 groups, s);
}

}  // namespace

mx::array conv(const mx::array& x, const QuantizedWeight& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias, int64_t groups, mx::StreamOrDevice s,
               std::string_view caller) {
  return checked_conv(Operation::conv, caller, x, w, relation, bias, groups, s);
}

mx::array matmul_rows(const mx::array& x, const QuantizedWeight& w,
                      const std::optional<mx::array>& bias, mx::StreamOrDevice s,
                      std::string_view caller) {
  check_features(caller, "features", x);
  return checked_conv(Operation::linear, caller, x, w, Relation::identity(x.shape(0)), bias, 1, s);
}

}  // namespace lattice
