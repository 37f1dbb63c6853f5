/// @file
/// Operations on features; coordinates and identity stay. Plain MLX operations, except norms, GELU
/// and sums over rows.
///
///     batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var over all rows, or
///     given (running statistics)
///
/// Each works on (N, C) arrays (`*_features`) and on tensors. Statistics are exact: two passes,
/// float32 sums of pieces of 128 rows added in float64 (kernels/cpu/features/reduce.h), whatever
/// the dtype; the result is rounded once.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <utility>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// A function of each value.
enum class Activation { relu, sigmoid, silu, tanh, gelu, leaky_relu, softplus };
/// The activation of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API Activation parse_activation(std::string_view name, std::string_view operation);

/// Numbers that some activations take.
struct ActivationOptions {
  bool approximate = false;     ///< gelu: tanh form
  float negative_slope = 0.01;  ///< leaky_relu
  float beta = 1;               ///< softplus: log(1 + exp(beta x)) / beta,
  float threshold = 20;         ///< and x itself where beta x > threshold
};
/// The activation of each value, of x's shape and dtype.
LATTICE_API mx::array activation(const mx::array& x, Activation kind,
                                 const ActivationOptions& options = {}, mx::StreamOrDevice s = {});

/// Each value is 0 with probability p, otherwise divided by 1 - p. Not training: x.
LATTICE_API mx::array dropout_features(const mx::array& x, float p, bool training,
                                       const std::optional<mx::array>& key = {},
                                       mx::StreamOrDevice s = {});

/// (C,) float32 mean and variance (divided by N) over the rows; both 0 when there are none.
LATTICE_API std::pair<mx::array, mx::array> feature_statistics(const mx::array& x,
                                                               mx::StreamOrDevice s = {});

/// The scale and the shift of a norm.
struct Affine {
  std::optional<mx::array> weight;  ///< (C,)
  std::optional<mx::array> bias;    ///< (C,)
};
/// Options of batch_norm_act().
struct NormOptions {
  float eps = 1e-5f;                  ///< added to the variance
  std::optional<mx::array> residual;  ///< of x's shape and dtype
  bool relu = false;                  ///< whether negative results become 0
};
/// y, and the float32 statistics that were used, without gradient.
struct Normalized {
  mx::array y;     ///< (N, C)
  mx::array mean;  ///< (C,) float32
  mx::array var;   ///< (C,) float32
};
/// y = relu(batch_norm(x) + residual) in one pass, differentiable to any order. Without mean and
/// var: those of the rows.
LATTICE_API Normalized batch_norm_act(const mx::array& x, const Affine& affine = {},
                                      const std::optional<mx::array>& mean = {},
                                      const std::optional<mx::array>& var = {},
                                      const NormOptions& options = {}, mx::StreamOrDevice s = {});
/// @cond internal
/// The checks of that, for features of this shape and dtype; the message begins with `operation`.
void check_batch_norm(std::string_view operation, const mx::Shape& shape, mx::Dtype dtype,
                      const Affine& affine, const std::optional<mx::array>& mean,
                      const std::optional<mx::array>& var, const NormOptions& options);
/// The same after the checks.
Normalized launch_batch_norm(const mx::array& x, const Affine& affine,
                             const std::optional<mx::array>& mean,
                             const std::optional<mx::array>& var, const NormOptions& options,
                             mx::StreamOrDevice s);
/// @endcond
/// y of the same, without relu and residual.
LATTICE_API mx::array batch_norm_features(const mx::array& x, const Affine& affine = {},
                                          const std::optional<mx::array>& mean = {},
                                          const std::optional<mx::array>& var = {},
                                          float eps = 1e-5f, mx::StreamOrDevice s = {});
/// @cond internal
/// gelu(x) exactly, and (x - m) / sqrt(var + eps) weight + bias of each row; both after the checks.
mx::array launch_gelu(const mx::array& x, mx::StreamOrDevice s);
mx::array launch_row_norm(const mx::array& x, const Affine& affine, float eps, bool centered,
                          mx::StreamOrDevice s);
/// @endcond
/// (x - mean) / sqrt(var + eps) weight + bias, mean and var of each row.
LATTICE_API mx::array layer_norm_features(const mx::array& x, const Affine& affine = {},
                                          float eps = 1e-5f, mx::StreamOrDevice s = {});
/// x / sqrt(mean of x^2 + eps) weight, the mean of each row.
LATTICE_API mx::array rms_norm_features(const mx::array& x,
                                        const std::optional<mx::array>& weight = {},
                                        float eps = 1e-5f, mx::StreamOrDevice s = {});

}  // namespace lattice
