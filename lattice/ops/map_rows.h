// Reductions of feature rows along a RowMap, the one linear operation behind voxels, interpolation
// and neighbors.
//
//   y[o] = sum, mean or max over the entries e of row o of weights[e] x[rows[e]]
//   a row without entries is 0
//
// Sums in float32 in the order of the entries, rounded once. Derivatives of any order, reverse and
// forward; a maximum shares its derivative equally among ties.
#pragma once

#include <mlx/utils.h>

#include <string_view>

#include "lattice/core/row_map.h"

namespace lattice {

// x is (map->n_in(), C), float32, float16 or bfloat16; `what` names it in messages.
mx::array map_rows(const mx::array& x, const RowMap::Ptr& map, std::string_view operation,
                   std::string_view what, mx::StreamOrDevice s = {});

}  // namespace lattice
