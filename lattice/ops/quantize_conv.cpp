#include "lattice/ops/quantize_conv.h"

#include <mlx/ops.h>

#include <stdexcept>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/conv_core.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

[[noreturn]] void fail(const std::string& operation, const std::string& message) {
  throw std::invalid_argument("[" + operation + "] " + message);
}

// Inputs: x, codes, scales, biases and, if any, the bias.
mx::array conv_of(const char* operation, const graph::Arrays& inputs, const Packing& packing,
                  int64_t c_out, const Relation::Ptr& relation, int64_t groups,
                  mx::StreamOrDevice s) {
  const int64_t c_in = inputs[0].shape(1);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call;
    call.operation = operation;
    call.inputs = in;
    call.relation = relation;
    call.c_in = c_in;
    call.c_out = c_out;
    call.groups = groups;
    call.dtype = in[0].dtype();
    call.storage = "packed int" + std::to_string(packing.bits) + ", a scale for " +
                   std::to_string(packing.group_size) + " codes";
    call.packing = packing;
    call.stream = s;
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

mx::array checked_conv(const char* op, const mx::array& x, const QuantizedWeight& w,
                       const Relation::Ptr& relation, const std::optional<mx::array>& bias,
                       int64_t groups, mx::StreamOrDevice s) {
  if (x.ndim() != 2 || x.shape(0) != relation->n_in())
    fail(op, "x must have shape (" + std::to_string(relation->n_in()) + ", C), got " +
                 shape_text(x.shape()));
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
  graph::Arrays inputs = {x, w.weight(), w.scales(), w.biases()};
  if (bias) {
    if (bias->ndim() != 1 || bias->shape(0) != w.out_channels())
      fail(op, "bias must have shape (" + std::to_string(w.out_channels()) + ",), got " +
                   shape_text(bias->shape()));
    inputs.push_back(mx::astype(*bias, x.dtype(), s));
  }
  return conv_of(op, inputs, {w.bits(), w.group_size(), false}, w.out_channels(), relation, groups,
                 s);
}

}  // namespace

mx::array conv(const mx::array& x, const QuantizedWeight& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias, int64_t groups, mx::StreamOrDevice s) {
  return checked_conv("conv", x, w, relation, bias, groups, s);
}

mx::array matmul_rows(const mx::array& x, const QuantizedWeight& w,
                      const std::optional<mx::array>& bias, mx::StreamOrDevice s) {
  if (x.ndim() != 2)
    fail("linear", "features must have shape (N, C_in), got " + shape_text(x.shape()));
  return checked_conv("linear", x, w, Relation::identity(x.shape(0)), bias, 1, s);
}

}  // namespace lattice
