/// @file
/// Conversion between sparse tensors and dense arrays.
///
///     dense[b, x - m.x, y - m.y, z - m.z, :] = feats[row of (b, x, y, z)], m = min_coord
///
/// Cells without a row are 0.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// (B, X, Y, Z, C). `shape`: X Y Z, or B X Y Z, or B X Y Z C; without it, the smallest that holds
/// every row. min_coord is 0 unless given. Throws std::invalid_argument when a row lies outside or
/// two rows are at one place. Differentiable in feats.
LATTICE_API mx::array to_dense(const SparseTensor& x,
                               const std::optional<std::vector<int64_t>>& shape = std::nullopt,
                               const std::optional<Triple>& min_coord = std::nullopt,
                               mx::StreamOrDevice s = {});

/// Rows for the cells where `mask` (B, X, Y, Z) is true; without it, where some channel is not 0.
/// Order (b, x, y, z), int32 coordinates, batch_counts set. Differentiable in `dense`; the choice
/// of cells is evaluated here.
LATTICE_API SparseTensor from_dense(const mx::array& dense,
                                    const std::optional<mx::array>& mask = std::nullopt,
                                    const Triple& stride = {1, 1, 1},
                                    const Triple& min_coord = {0, 0, 0}, mx::StreamOrDevice s = {});

}  // namespace lattice
