/// @file
/// Joins and selects columns of features, and sums rows, each in one pass over memory.
#pragma once

#include <vector>

#include "lattice/core/names.h"

namespace lattice {

/// (N, C_1), (N, C_2), ... of one dtype -> (N, C_1 + C_2 + ...).
LATTICE_API mx::array join_columns(const std::vector<mx::array>& parts, mx::StreamOrDevice s = {});

/// Columns [first, first + count) of (N, C).
LATTICE_API mx::array take_columns(const mx::array& x, int first, int count,
                                   mx::StreamOrDevice s = {});

/// Sum over rows: (N, C) -> (C,), float32 sums of fixed pieces, rounded once.
mx::array sum_rows(const mx::array& x, mx::StreamOrDevice s = {});
/// The same in MLX operations.
mx::array sum_rows_with_mlx(const mx::array& x, mx::StreamOrDevice s);

}  // namespace lattice
