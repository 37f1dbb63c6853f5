// Operations on features; coordinates and identity stay. Plain MLX operations, except norms, GELU
// and sums over rows.
//
//   batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var over all rows, or
//   given (running statistics)
//
// Each works on (N, C) arrays (`*_features`) and on tensors. Statistics are exact: two passes,
// float32 sums of pieces of 128 rows added in float64 (kernels/cpu/features/reduce.h), whatever the
// dtype; the result is rounded once.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <utility>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

enum class Activation { relu, sigmoid, silu, tanh, gelu, leaky_relu, softplus };
Activation parse_activation(std::string_view name, std::string_view operation);

struct ActivationOptions {
  bool approximate = false;     // gelu: tanh form
  float negative_slope = 0.01;  // leaky_relu
  float beta = 1;               // softplus: log(1 + exp(beta x)) / beta,
  float threshold = 20;         // and x itself where beta x > threshold
};
mx::array activation(const mx::array& x, Activation kind, const ActivationOptions& options = {},
                     mx::StreamOrDevice s = {});

// Each value is 0 with probability p, otherwise divided by 1 - p. Not training: x.
mx::array dropout_features(const mx::array& x, float p, bool training,
                           const std::optional<mx::array>& key = {}, mx::StreamOrDevice s = {});

// (C,) float32 mean and variance (divided by N) over the rows; both 0 when there are none.
std::pair<mx::array, mx::array> feature_statistics(const mx::array& x, mx::StreamOrDevice s = {});

struct Affine {
  std::optional<mx::array> weight, bias;  // (C,)
};
struct NormOptions {
  float eps = 1e-5f;
  std::optional<mx::array> residual;  // of x's shape and dtype
  bool relu = false;
  // Nobody else reads x. The norm then may be done in the pass of the convolution that makes x,
  // without the rounding of x between them. It is so where the statistics are given and x comes
  // from a convolution on the CPU that was not evaluated yet.
  bool only_reader = false;
};
// y, and the float32 statistics that were used, without gradient.
struct Normalized {
  mx::array y, mean, var;
};
// y = relu(batch_norm(x) + residual) in one pass, differentiable to any order. Without mean and
// var: those of the rows.
Normalized batch_norm_act(const mx::array& x, const Affine& affine,
                          const std::optional<mx::array>& mean = {},
                          const std::optional<mx::array>& var = {}, const NormOptions& options = {},
                          mx::StreamOrDevice s = {});
// The same after the checks.
Normalized launch_batch_norm(const mx::array& x, const Affine& affine,
                             const std::optional<mx::array>& mean,
                             const std::optional<mx::array>& var, const NormOptions& options,
                             mx::StreamOrDevice s);
// y of the same, without relu and residual.
mx::array batch_norm_features(const mx::array& x, const Affine& affine,
                              const std::optional<mx::array>& mean = {},
                              const std::optional<mx::array>& var = {}, float eps = 1e-5f,
                              mx::StreamOrDevice s = {});
// gelu(x) exactly, and (x - m) / sqrt(var + eps) weight + bias of each row; both after the checks.
mx::array launch_gelu(const mx::array& x, mx::StreamOrDevice s);
mx::array launch_row_norm(const mx::array& x, const Affine& affine, float eps, bool centered,
                          mx::StreamOrDevice s);
mx::array layer_norm_features(const mx::array& x, const Affine& affine, float eps = 1e-5f,
                              mx::StreamOrDevice s = {});
mx::array rms_norm_features(const mx::array& x, const std::optional<mx::array>& weight,
                            float eps = 1e-5f, mx::StreamOrDevice s = {});

}  // namespace lattice
