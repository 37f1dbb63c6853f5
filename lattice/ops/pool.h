/// @file
/// Pooling of sparse tensors: over a kernel, over a batch item, and back.
///
///     pool3d:                y[o] = sum, mean or max over the edges (i, o, k) of x[i];
///                            forward relation
///     pool_transpose3d:      y[o] = mean over the edges of the (target-)transposed relation
///     trilinear_upsample3d:  y[o] = sum of w[k] x[i] / sum of w[k], kernel 2s - 1, padding s - 1,
///                            w = product over the axes of 1 - |i - (s - 1)| / s
///     global_pool:           y[b] = sum, mean or max over the rows of batch item b
///     broadcast_*:           x[r] with per_batch[batch of r]
///
/// A row without edges is 0 in every mode. float32, float16, bfloat16; sums in float32, rounded
/// once. Differentiable.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string>

#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/relations.h"

namespace lattice {

/// Output stride x.stride * stride. `caller` is the operation that messages name. `ties` says who
/// gets the gradient of equal maxima.
LATTICE_API SparseTensor pool3d(const SparseTensor& x, Reduction mode, const KernelSpec& spec = {},
                                mx::StreamOrDevice s = {}, const std::string& caller = "pool3d",
                                Support support = Support::floored, Ties ties = Ties::split);
/// Output stride x.stride / stride, which must divide.
LATTICE_API SparseTensor pool_transpose3d(const SparseTensor& x,
                                          const std::optional<TargetCoords>& target = std::nullopt,
                                          const KernelSpec& spec = {{2, 2, 2}, {2, 2, 2}},
                                          mx::StreamOrDevice s = {});
/// Trilinear interpolation onto the finer lattice, or onto `target`.
LATTICE_API SparseTensor trilinear_upsample3d(
    const SparseTensor& x, const std::optional<TargetCoords>& target = std::nullopt,
    const Triple& stride = {2, 2, 2}, mx::StreamOrDevice s = {});

/// (B, C). B: x.batch_counts, else batch_size, else the largest batch + 1. An empty item gives 0;
/// with max it is an error.
LATTICE_API mx::array global_pool(const SparseTensor& x, Reduction mode,
                                  const std::optional<int64_t>& batch_size = std::nullopt,
                                  mx::StreamOrDevice s = {},
                                  const std::string& caller = "global_pool");
/// x[r] + per_batch[batch of r]. per_batch is (B, C), every batch of x below B; C are x's channels.
LATTICE_API SparseTensor broadcast_add(const SparseTensor& x, const mx::array& per_batch,
                                       mx::StreamOrDevice s = {});
/// x[r] * per_batch[batch of r].
LATTICE_API SparseTensor broadcast_mul(const SparseTensor& x, const mx::array& per_batch,
                                       mx::StreamOrDevice s = {});
/// x[r] and per_batch[batch of r] side by side; per_batch may have any number of channels.
LATTICE_API SparseTensor broadcast_cat(const SparseTensor& x, const mx::array& per_batch,
                                       mx::StreamOrDevice s = {});

}  // namespace lattice
