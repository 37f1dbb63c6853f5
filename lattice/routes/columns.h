// Launchers of sum_rows, join_columns and take_columns.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

// (N, C) -> (C,), float32 sums, rounded once.
mx::array sum_rows_chunks(const Call& call, const Route& route);
mx::array sum_of_call(const Call& call);
mx::array sum_rows_with_mlx(const mx::array& x, mx::StreamOrDevice s);

// (N, C_1), (N, C_2), ... -> (N, C_1 + C_2 + ...).
mx::array join_columns_copies(const Call& call, const Route& route);
mx::array join_columns_with_mlx(const Call& call);

mx::array take_columns_copies(const Call& call, const Route& route);
mx::array take_columns_with_mlx(const Call& call);

}  // namespace lattice
