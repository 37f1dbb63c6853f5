// Convolutions of sparse tensors.
//
//   y[o] = bias + sum over edges (i, o, k) of x[i] W[k]
//   the kinds of convolution differ in how the edges are found
//
// Weights: (C_out, C_in) for pointwise kernels, (K, C_in, C_out), or (C_out, Kx, Ky, Kz, C_in);
// with groups C_in counts inside a group. Weight dtype equals feature dtype; bias (C_out,) is cast.
// Packed weights (docs/ops/quantize.md) have the dtype of their scales; normalized convolutions do
// not take them.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <variant>

#include "lattice/core/quantized_weight.h"
#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/relations.h"

namespace lattice {

// An array in one of the layouts above, or packed.
using Weight = std::variant<mx::array, QuantizedWeight>;

struct ConvOptions {
  KernelSpec spec;
  std::optional<TargetCoords> coordinates;  // where the output lies; otherwise the kind decides
  int64_t groups = 1;
};

// Output stride x.stride * stride. A pointwise kernel without `coordinates` is a matrix product and
// keeps x's identity.
SparseTensor conv3d(const SparseTensor& x, const Weight& weight,
                    const std::optional<mx::array>& bias, const ConvOptions& options,
                    mx::StreamOrDevice s = {});
// Odd sizes, stride 1; keeps x's identity.
SparseTensor subm_conv3d(const SparseTensor& x, const Weight& weight,
                         const std::optional<mx::array>& bias, const ConvOptions& options,
                         mx::StreamOrDevice s = {});
// Output stride x.stride / stride, which must divide.
SparseTensor conv_transpose3d(const SparseTensor& x, const Weight& weight,
                              const std::optional<mx::array>& bias, const ConvOptions& options,
                              mx::StreamOrDevice s = {});
SparseTensor generative_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                         const std::optional<mx::array>& bias,
                                         const ConvOptions& options, mx::StreamOrDevice s = {});

// conv(x, W) / sqrt(conv(1, W^2) + eps) + bias; eps > 0. Pointwise kernels are not normalized.
SparseTensor normalized_subm_conv3d(const SparseTensor& x, const Weight& weight,
                                    const std::optional<mx::array>& bias,
                                    const ConvOptions& options, float eps,
                                    mx::StreamOrDevice s = {});
SparseTensor normalized_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                         const std::optional<mx::array>& bias,
                                         const ConvOptions& options, float eps,
                                         mx::StreamOrDevice s = {});
SparseTensor normalized_generative_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                                    const std::optional<mx::array>& bias,
                                                    const ConvOptions& options, float eps,
                                                    mx::StreamOrDevice s = {});

// y = x W^T + bias with weight (C_out, C_in).
SparseTensor linear(const SparseTensor& x, const Weight& weight,
                    const std::optional<mx::array>& bias, mx::StreamOrDevice s = {});
mx::array linear_features(const mx::array& feats, const Weight& weight,
                          const std::optional<mx::array>& bias, mx::StreamOrDevice s = {});

}  // namespace lattice
