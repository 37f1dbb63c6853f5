// Matrix products of rows: conv on the relation of every row with itself.
#include <mlx/ops.h>

#include "lattice/ops/check.h"
#include "lattice/ops/conv.h"
#include "lattice/routes/conv.h"

namespace lattice {
namespace {

using Bias = std::optional<mx::array>;

void check_codes(const std::string& op, const mx::array& x, const QuantizedWeight& w) {
  if (x.dtype() != w.dtype() && w.dtype() != mx::float32)
    fail(op, "scales of a packed weight must have the dtype of the features, got " +
                 graph::dtype_name(w.dtype()) + " and " + graph::dtype_name(x.dtype()));
  if (w.in_channels() != x.shape(1))
    fail(op, "weight must have " + std::to_string(x.shape(1)) + " input channels, got " +
                 std::to_string(w.in_channels()));
}

// x w + bias, with w (c_in, c_out).
mx::array linear_rows(const mx::array& x, const mx::array& w, const Bias& bias,
                      const PackedKernel::Panels& panels, mx::StreamOrDevice s) {
  check_features("linear", "features", x);
  if (w.ndim() != 2 || w.shape(0) != x.shape(1))
    fail("linear", "weight must have " + std::to_string(x.shape(1)) + " input channels, got " +
                       std::to_string(w.shape(0)));
  check_same_dtype("linear", "weight", w.dtype(), x.dtype());
  check_bias("linear", bias, w.shape(1));
  return conv_rows(x, {mx::expand_dims(w, 0, s), std::nullopt, panels}, nullptr, bias, 1, s);
}

}  // namespace

mx::array matmul_rows(const mx::array& x, const mx::array& w, const Bias& bias,
                      mx::StreamOrDevice s) {
  return linear_rows(x, w, bias, nullptr, s);
}

mx::array linear_features(const mx::array& feats, const Weight& weight, const Bias& bias,
                          mx::StreamOrDevice s) {
  const std::string op = "linear";
  if (const auto* codes = std::get_if<QuantizedWeight>(&weight)) {
    if (!codes->is_pointwise()) fail(op, "weight must have one offset, got " + codes->text());
    check_features(op, "features", feats);
    check_codes(op, feats, *codes);
    check_bias(op, bias, codes->out_channels());
    return conv_rows(feats, weight_of(*codes), nullptr, bias, 1, s);
  }
  const auto* packed = std::get_if<PackedKernel>(&weight);
  const mx::array& w = packed ? packed->weight() : std::get<mx::array>(weight);
  if (w.ndim() != 2) fail(op, "weight must have shape (C_out, C_in), got " + shape_text(w.shape()));
  return linear_rows(feats, mx::transpose(w, s), bias, packed ? packed->panels() : nullptr, s);
}

SparseTensor linear(const SparseTensor& x, const Weight& weight, const Bias& bias,
                    mx::StreamOrDevice s) {
  return x.with_feats(linear_features(x.feats(), weight, bias, s));
}

}  // namespace lattice
