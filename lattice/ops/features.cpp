#include "lattice/ops/features.h"

#include <mlx/ops.h>
#include <mlx/random.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"

namespace lattice {
namespace {

void check_rows(std::string_view op, const mx::array& x) {
  if (x.ndim() != 2) fail(op, "features must have shape (N, C), got " + shape_text(x.shape()));
  check_float(op, x);
}

void check_vector(std::string_view op, const char* what, const std::optional<mx::array>& v,
                  int channels) {
  if (v && (v->ndim() != 1 || v->shape(0) != channels))
    fail(op, std::string(what) + " must have shape (" + std::to_string(channels) + ",), got " +
                 shape_text(v->shape()));
}

// Statistics that are given may do without eps; a row of one channel has the variance 0.
void check_eps(std::string_view op, float eps, bool of_rows) {
  if (!(of_rows ? eps > 0 : eps >= 0) || !std::isfinite(eps))
    fail(op, std::string("eps must be finite and ") + (of_rows ? "> 0" : ">= 0") + ", got " +
                 std::to_string(eps));
}

}  // namespace

Activation parse_activation(std::string_view name, std::string_view operation) {
  static constexpr std::string_view kNames[] = {"relu", "sigmoid",    "silu",    "tanh",
                                                "gelu", "leaky_relu", "softplus"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Activation>(i);
  fail(operation, "kind must be relu, sigmoid, silu, tanh, gelu, leaky_relu or softplus, got '" +
                      std::string(name) + "'");
}

mx::array activation(const mx::array& x, Activation kind, const ActivationOptions& o,
                     mx::StreamOrDevice s) {
  check_float("activation", x);
  const auto scalar = [&](double v) { return mx::array(static_cast<float>(v), x.dtype()); };
  switch (kind) {
    case Activation::relu:
      return mx::maximum(x, scalar(0), s);
    case Activation::sigmoid:
      return mx::sigmoid(x, s);
    case Activation::silu:
      return mx::multiply(x, mx::sigmoid(x, s), s);
    case Activation::tanh:
      return mx::tanh(x, s);
    case Activation::gelu: {
      if (!o.approximate) return launch_gelu(x, s);
      const mx::array v = as_float32(x, s), half(0.5f), one(1.0f);
      const mx::array cubic = mx::add(
          v, mx::multiply(mx::array(0.044715f), mx::multiply(v, mx::square(v, s), s), s), s);
      const mx::array inner =
          mx::tanh(mx::multiply(mx::array(static_cast<float>(std::sqrt(2 * std::numbers::inv_pi))),
                                cubic, s),
                   s);
      return mx::astype(mx::multiply(mx::multiply(half, v, s), mx::add(one, inner, s), s),
                        x.dtype(), s);
    }
    case Activation::leaky_relu:
      return mx::where(mx::greater(x, scalar(0), s), x,
                       mx::multiply(scalar(double{o.negative_slope}), x, s), s);
    default: {
      if (!(o.beta > 0) || !std::isfinite(o.beta))
        fail("softplus", "beta must be > 0 and finite, got " + std::to_string(o.beta));
      const mx::array v = as_float32(x, s), scaled = mx::multiply(v, mx::array(o.beta), s);
      const mx::array soft =
          mx::divide(mx::logaddexp(scaled, mx::array(0.0f), s), mx::array(o.beta), s);
      return mx::astype(mx::where(mx::greater(scaled, mx::array(o.threshold), s), v, soft, s),
                        x.dtype(), s);
    }
  }
}

mx::array dropout_features(const mx::array& x, float p, bool training,
                           const std::optional<mx::array>& key, mx::StreamOrDevice s) {
  check_float("dropout", x);
  if (!(p >= 0 && p < 1)) fail("dropout", "p must be in [0, 1), got " + std::to_string(p));
  if (!training || p == 0) return x;
  const mx::array keep = mx::random::bernoulli(mx::array(1 - p), x.shape(), key, s);
  return mx::where(keep, mx::multiply(x, mx::array(1 / (1 - p), x.dtype()), s),
                   mx::array(0.0f, x.dtype()), s);
}

std::pair<mx::array, mx::array> feature_statistics(const mx::array& x, mx::StreamOrDevice s) {
  check_rows("feature_statistics", x);
  const mx::array v = as_float32(x, s), n(static_cast<float>(std::max(x.shape(0), 1)));
  const mx::array mean = mx::divide(sum_rows(v, s), n, s);
  const mx::array var = mx::divide(sum_rows(mx::square(mx::subtract(v, mean, s), s), s), n, s);
  return {mean, var};
}

void check_batch_norm(std::string_view operation, const mx::Shape& shape, mx::Dtype dtype,
                      const Affine& affine, const std::optional<mx::array>& mean,
                      const std::optional<mx::array>& var, const NormOptions& options) {
  check_eps(operation, options.eps, false);
  if (mean.has_value() != var.has_value())
    fail(operation, "mean and var must be given together, got one of them");
  check_vector(operation, "weight", affine.weight, shape[1]);
  check_vector(operation, "bias", affine.bias, shape[1]);
  check_vector(operation, "mean", mean, shape[1]);
  check_vector(operation, "var", var, shape[1]);
  if (const auto& r = options.residual; r && (r->shape() != shape || r->dtype() != dtype))
    fail(operation, "residual must have the shape and dtype of the features, " + shape_text(shape) +
                        " " + graph::dtype_name(dtype) + ", got " + shape_text(r->shape()) + " " +
                        graph::dtype_name(r->dtype()));
}

Normalized batch_norm_act(const mx::array& x, const Affine& affine,
                          const std::optional<mx::array>& mean, const std::optional<mx::array>& var,
                          const NormOptions& options, mx::StreamOrDevice s) {
  check_rows("batch_norm", x);
  check_batch_norm("batch_norm", x.shape(), x.dtype(), affine, mean, var, options);
  return launch_batch_norm(x, affine, mean, var, options, s);
}

mx::array batch_norm_features(const mx::array& x, const Affine& affine,
                              const std::optional<mx::array>& mean,
                              const std::optional<mx::array>& var, float eps,
                              mx::StreamOrDevice s) {
  return batch_norm_act(x, affine, mean, var, {.eps = eps, .residual = std::nullopt}, s).y;
}

mx::array layer_norm_features(const mx::array& x, const Affine& affine, float eps,
                              mx::StreamOrDevice s) {
  check_rows("layer_norm", x);
  check_eps("layer_norm", eps, true);
  check_vector("layer_norm", "weight", affine.weight, x.shape(1));
  check_vector("layer_norm", "bias", affine.bias, x.shape(1));
  return launch_row_norm(x, affine, eps, true, s);
}

mx::array rms_norm_features(const mx::array& x, const std::optional<mx::array>& weight, float eps,
                            mx::StreamOrDevice s) {
  check_rows("rms_norm", x);
  check_eps("rms_norm", eps, true);
  check_vector("rms_norm", "weight", weight, x.shape(1));
  return launch_row_norm(x, {weight, std::nullopt}, eps, false, s);
}

}  // namespace lattice
