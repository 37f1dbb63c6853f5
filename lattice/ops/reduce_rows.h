// Operations on groups of rows: reductions over each group, and a gather that gives every row the
// value of its group.
//
//   reduce_rows: y[g, :] = sum, mean, max or min over the rows r with group[r] == g of x[r, :]
//                (N, C) -> (G, C)
//   gather_rows: x[r, :] = y[group[r], :], fill where group[r] < 0
//                (G, C) -> (N, C)
//
// Sum and gather are adjoint to each other, so derivatives of any order exist. Max and min share a
// gradient equally among ties, or as `ties` says. Their jvp takes the tied row with the smallest
// number. Rows are summed in ascending order, as kernels/cpu/features/segments.h says. A group
// without rows gives 0. Batches, duplicates, joins and voxels are all groups of rows.
#pragma once

#include <mlx/utils.h>

#include <string_view>

#include "lattice/core/names.h"
#include "lattice/core/row_groups.h"

namespace lattice {

// Row r belongs to group group_of[r], an evaluated int32 array that the caller has checked.
RowGroups::Ptr groups_of(const mx::array& group_of, int64_t n_groups);

LATTICE_API Reduction parse_reduction(std::string_view name, std::string_view operation,
                                      std::string_view argument);

mx::array reduce_rows(const mx::array& x, const RowGroups::Ptr& groups, Reduction reduction,
                      mx::StreamOrDevice s = {}, Ties ties = Ties::split);
mx::array gather_rows(const mx::array& y, const RowGroups::Ptr& groups, float fill = 0,
                      mx::StreamOrDevice s = {});

// out[i, c] = t[rows[i, c], c], 0 where rows[i, c] < 0: the jvp of a maximum. Plain MLX operations.
mx::array gather_by_index(const mx::array& t, const mx::array& rows, mx::StreamOrDevice s = {});
// Its adjoint: out[rows[i, c], c] += g[i, c], n rows.
mx::array scatter_by_index(const mx::array& g, const mx::array& rows, int n,
                           mx::StreamOrDevice s = {});

}  // namespace lattice
