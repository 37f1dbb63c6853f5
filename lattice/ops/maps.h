/// @file
/// Sparse maps in two dimensions: conversion from and to dense maps, sums over an axis, and the
/// rows of several levels together.
///
/// A map is a SparseTensor with coordinates (batch, 0, y, x) and kernels of one cell along the
/// first axis, so that this axis costs nothing. A dense map is a sparse one with all cells: the
/// kernels of sparse convolutions then compute dense layers.
#pragma once

#include <mlx/utils.h>

#include <array>
#include <optional>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// The rows (b, y, x) of a dense map (B, H, W, C), inside of bounds (1, H, W). Maps of equal size
/// and stride share their coordinates and relations, which the library keeps for the last 16 sizes
/// until release_memory() is called. Differentiable.
LATTICE_API SparseTensor from_map(const mx::array& dense, int64_t stride = 1);
/// @cond internal
void release_maps();
/// @endcond
/// (B, H, W, C) of a sparse map, 0 where it has no row. shape (H, W) is by default that of the
/// bounds; without both it throws std::invalid_argument. Differentiable.
LATTICE_API mx::array to_map(const SparseTensor& x,
                             const std::optional<std::array<int64_t, 2>>& shape = std::nullopt,
                             const std::optional<int64_t>& batch_size = std::nullopt,
                             mx::StreamOrDevice s = {});

/// Features of rows that differ in one axis only, added: axis 0, 1 or 2 behind the batch. That
/// coordinate becomes 0, rows come by (batch, x, y, z), bounds shrink to one cell. Rows of x may
/// occur several times. Differentiable.
LATTICE_API SparseTensor sum_over(const SparseTensor& x, int64_t axis, mx::StreamOrDevice s = {});
/// Rows of all levels one after the other, on the lattice of the first: coordinates times the ratio
/// of the strides, which must be whole. A place that several levels have occurs once for each of
/// them.
LATTICE_API SparseTensor merge_levels(const std::vector<SparseTensor>& levels);

}  // namespace lattice
