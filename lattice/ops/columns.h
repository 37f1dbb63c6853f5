// Columns of features side by side, and some columns of features: what skip connections do, at the
// speed of memory.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <vector>

namespace lattice {
namespace mx = mlx::core;

// (N, C_1), (N, C_2), ... of one dtype -> (N, C_1 + C_2 + ...).
mx::array join_columns(const std::vector<mx::array>& parts, mx::StreamOrDevice s = {});

// Columns [first, first + count) of (N, C).
mx::array take_columns(const mx::array& x, int first, int count, mx::StreamOrDevice s = {});

}  // namespace lattice
