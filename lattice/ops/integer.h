/// @file
/// Convolutions in exact integers, and the conversions of features to and from integers.
/// docs/ops/integer.md has the formats.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <vector>

#include "lattice/core/integer_kernel.h"
#include "lattice/ops/conv.h"

namespace lattice {

/// A convolution, strided, transposed or submanifold, with residual and ReLU in the same pass. The
/// tensors of `x` stand for their channels side by side. Kind and options are those of conv_norm();
/// groups is 1. No derivative. Throws std::invalid_argument when dtypes, shapes or coordinates do
/// not fit the kernel.
LATTICE_API SparseTensor integer_conv(RelationKind kind, const std::vector<SparseTensor>& x,
                                      const IntegerKernel& kernel, const ConvOptions& options = {},
                                      const std::optional<SparseTensor>& residual = std::nullopt,
                                      mx::StreamOrDevice s = {});

/// The same of rows (N, C_in) alone: a linear layer.
LATTICE_API mx::array integer_linear(const mx::array& x, const IntegerKernel& kernel,
                                     mx::StreamOrDevice s = {});

/// Features (N, C) float32 as int16 of 12 bits, or as int8 (bytes with 128 added): x * inverse,
/// clamped to -2047 .. 2047 or -127 .. 127 and rounded to nearest, ties to even; NaN becomes 0.
/// inverse is (C,) float32: one over the step of a channel.
LATTICE_API mx::array quantize_features(const mx::array& feats, const mx::array& inverse,
                                        mx::Dtype format = mx::int16, mx::StreamOrDevice s = {});

/// Pooling of uint8 features over a kernel, exact:
///
///     max:   the largest byte, 0 without edges
///     sum:   clamp(float(sum) * scale, 0, 255) rounded to nearest, ties to even
///     mean:  the same with scale / float(number of edges)
LATTICE_API SparseTensor integer_pool(const SparseTensor& x, Reduction mode, const KernelSpec& spec,
                                      float scale = 1, mx::StreamOrDevice s = {});
/// (B, C) of the rows of each batch item, as above; int16 (clamped to 0 .. 2047) keeps more of a
/// mean. B: x.batch_counts, else the largest batch + 1.
LATTICE_API mx::array integer_global_pool(const SparseTensor& x, Reduction mode, float scale = 1,
                                          mx::Dtype output = mx::uint8, mx::StreamOrDevice s = {});

/// uint8 features as float32: (byte - zero) * step, zero 128 of int8.
LATTICE_API mx::array dequantize_features(const mx::array& feats, float step,
                                          mx::Dtype format = mx::uint8, mx::StreamOrDevice s = {});

}  // namespace lattice
