/// @file
/// Convolutions in exact integers, and what leads into them. docs/ops/integer.md has the formats.
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

/// Features (N, C) float32 as 12-bit int16: x * inverse, clamped to -2047 .. 2047 and rounded to
/// nearest, ties to even; NaN becomes 0. inverse is (C,) float32: one over the step of a channel.
LATTICE_API mx::array quantize_features(const mx::array& feats, const mx::array& inverse,
                                        mx::StreamOrDevice s = {});

}  // namespace lattice
