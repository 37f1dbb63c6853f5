/// @file
/// Convolutions of sparse tensors.
///
///     y[o] = bias + sum over edges (i, o, k) of x[i] W[k]
/// the kinds of convolution differ in how the edges are found
///
/// Weights: (C_out, C_in) for pointwise kernels, (K, C_in, C_out), or (C_out, Kx, Ky, Kz, C_in);
/// with groups C_in counts inside a group. Weight dtype equals feature dtype; bias (C_out,) is
/// cast. Packed weights (docs/ops/quantize.md) have the dtype of their scales; normalized
/// convolutions do not take them. x is (N, C_in), the result (M, C_out); both are float32, float16
/// or bfloat16. Every function throws std::invalid_argument when shapes, dtypes or strides do not
/// fit.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lattice/core/sparse_tensor.h"
#include "lattice/core/weights.h"
#include "lattice/ops/relations.h"

namespace lattice {

/// An array in one of the layouts above, such an array packed for the CPU, or codes of 4 or 8 bits.
using Weight = std::variant<mx::array, QuantizedWeight, PackedKernel>;

/// Arranges an array in one of the layouts above for many calls on the CPU (core/weights.h). The
/// array is evaluated, so this does not work inside mx.compile. Where `s` is a stream of a GPU,
/// nothing is arranged.
LATTICE_API PackedKernel pack_kernel(const mx::array& weight, int64_t groups = 1,
                                     mx::StreamOrDevice s = {});

/// Kernel, output coordinates and groups of a convolution.
struct ConvOptions {
  KernelSpec spec;                          ///< size, stride, padding and dilation
  std::optional<TargetCoords> coordinates;  ///< where the output lies; otherwise the kind decides
  int64_t groups = 1;                       ///< number of groups, which divides C_in and C_out
  Support support = Support::floored;       ///< support of conv3d and conv_transpose3d
};

/// Output stride x.stride * stride. A pointwise kernel without `coordinates` is a matrix product
/// and keeps x's identity.
LATTICE_API SparseTensor conv3d(const SparseTensor& x, const Weight& weight,
                                const std::optional<mx::array>& bias = std::nullopt,
                                const ConvOptions& options = {}, mx::StreamOrDevice s = {});
/// Odd sizes, stride 1; keeps x's identity.
LATTICE_API SparseTensor subm_conv3d(const SparseTensor& x, const Weight& weight,
                                     const std::optional<mx::array>& bias = std::nullopt,
                                     const ConvOptions& options = {}, mx::StreamOrDevice s = {});
/// Output stride x.stride / stride, which must divide.
LATTICE_API SparseTensor conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                          const std::optional<mx::array>& bias = std::nullopt,
                                          const ConvOptions& options = {},
                                          mx::StreamOrDevice s = {});
/// The way back from a reached support: the edges of the relation that made x from `fine`, with
/// their ends swapped and the same offset, so the result lies on the rows of `fine`. The options
/// are those of the layer on the way down; `coordinates` and `support` are not read.
LATTICE_API SparseTensor inverse_conv3d(const SparseTensor& x, const Weight& weight,
                                        const TargetCoords& fine,
                                        const std::optional<mx::array>& bias = std::nullopt,
                                        const ConvOptions& options = {}, mx::StreamOrDevice s = {});
/// Like conv_transpose3d, but the output has every cell that a kernel reaches.
LATTICE_API SparseTensor
generative_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                            const std::optional<mx::array>& bias = std::nullopt,
                            const ConvOptions& options = {}, mx::StreamOrDevice s = {});

/// The norm, residual and ReLU that follow a convolution in evaluation.
struct NormAfter {
  mx::array mean;                        ///< (C_out,): running statistics
  mx::array var;                         ///< (C_out,): running statistics
  std::optional<mx::array> weight;       ///< (C_out,)
  std::optional<mx::array> bias;         ///< (C_out,)
  float eps = 1e-5f;                     ///< added to the variance
  std::optional<SparseTensor> residual;  ///< on the coordinates of the result, of its dtype
  bool relu = false;                     ///< whether negative results become 0
};
/// relu((conv(x) - mean) / sqrt(var + eps) * weight + bias + residual). On the CPU this is one pass
/// over memory, and a 16-bit result is rounded once. The kind of the relation is the kind of the
/// convolution: forward, submanifold, transposed or generative. Several tensors on the same
/// coordinates stand for their channels side by side; two of them with multiples of 16 channels are
/// never joined. Differentiable to any order in all arrays; a gradient computes the convolution
/// again, so in training the two separate operations are faster.
LATTICE_API SparseTensor conv_norm(RelationKind kind, const std::vector<SparseTensor>& x,
                                   const Weight& weight, const std::optional<mx::array>& bias,
                                   const ConvOptions& options, const NormAfter& norm,
                                   mx::StreamOrDevice s = {});

/// conv(x, W) / sqrt(conv(1, W^2) + eps) + bias; eps > 0. Pointwise kernels are not normalized.
LATTICE_API SparseTensor normalized_subm_conv3d(const SparseTensor& x, const Weight& weight,
                                                const std::optional<mx::array>& bias = std::nullopt,
                                                const ConvOptions& options = {}, float eps = 1e-8f,
                                                mx::StreamOrDevice s = {});
/// The same for conv_transpose3d.
LATTICE_API SparseTensor normalized_conv_transpose3d(
    const SparseTensor& x, const Weight& weight,
    const std::optional<mx::array>& bias = std::nullopt, const ConvOptions& options = {},
    float eps = 1e-8f, mx::StreamOrDevice s = {});
/// The same for generative_conv_transpose3d.
LATTICE_API SparseTensor normalized_generative_conv_transpose3d(
    const SparseTensor& x, const Weight& weight,
    const std::optional<mx::array>& bias = std::nullopt, const ConvOptions& options = {},
    float eps = 1e-8f, mx::StreamOrDevice s = {});

/// y = x W^T + bias with weight (C_out, C_in).
LATTICE_API SparseTensor linear(const SparseTensor& x, const Weight& weight,
                                const std::optional<mx::array>& bias = std::nullopt,
                                mx::StreamOrDevice s = {});
/// The same on features (N, C_in).
LATTICE_API mx::array linear_features(const mx::array& feats, const Weight& weight,
                                      const std::optional<mx::array>& bias = std::nullopt,
                                      mx::StreamOrDevice s = {});

/// @cond internal
/// The two bilinear operations that every convolution and every derivative of one is made of.
///
///     conv:  y[o, m]    = bias[m] + sum over edges (i, o, k) of sum_c x[i, c] w[k, c, m]
///     outer: u[k, c, m] = sum over edges (i, o, k) of x[i, c] g[o, m]
///
/// Derivatives: d conv/dx = conv(dy, w^T, r reversed), d conv/dw = outer(x, dy, r); d outer/dx =
/// conv(g, du^T, r reversed), d outer/dg = conv(x, du, r). So both are differentiable to any order.
/// Codes of a packed weight are constants: their gradient is 0, and d/dx reads W^T from the same
/// codes. With groups, channel c of w counts inside its group: x has c_in channels, w is (n_k, c_in
/// / groups, c_out). All arrays have one dtype. Sums are float32 by ascending k, rounded once.
/// `caller` is the operation that a message names.
mx::array conv(const mx::array& x, const mx::array& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias = std::nullopt, int64_t groups = 1,
               mx::StreamOrDevice s = {}, std::string_view caller = "conv");
mx::array outer(const mx::array& x, const mx::array& g, const Relation::Ptr& relation,
                int64_t groups = 1, mx::StreamOrDevice s = {});
/// y = x w + bias on (N, c_in) rows: conv on the relation of every row with itself. w is (c_in,
/// c_out).
mx::array matmul_rows(const mx::array& x, const mx::array& w,
                      const std::optional<mx::array>& bias = std::nullopt,
                      mx::StreamOrDevice s = {});

namespace routes {
struct ConvWeight;
}
/// The steps of a convolution of tensors, in this order.
///
/// First the weight, in any layout, is brought into the form that kernels read. It and the bias are
/// checked against `c_in` channels on the rows of x.
routes::ConvWeight checked_weight(const std::string& op, const SparseTensor& x, int64_t c_in,
                                  const Weight& weight, const std::optional<mx::array>& bias,
                                  const ConvOptions& options, mx::StreamOrDevice s);
routes::ConvWeight weight_of(const QuantizedWeight& w);
/// Then the relation of the call is found; it is null for a pointwise kernel on x's own
/// coordinates.
Relation::Ptr find_relation(const std::string& op, RelationKind kind, const SparseTensor& x,
                            const ConvOptions& options, mx::StreamOrDevice s);
/// Then the rows of the result are made, without further checks. Without a relation every row meets
/// itself.
mx::array conv_rows(const mx::array& x, const routes::ConvWeight& weight,
                    const Relation::Ptr& relation, const std::optional<mx::array>& bias,
                    int64_t groups, mx::StreamOrDevice s);
/// Finally the rows become a tensor on the outputs of the relation.
SparseTensor on_outputs(const SparseTensor& x, const Relation::Ptr& relation, mx::array feats);
/// @endcond

}  // namespace lattice
