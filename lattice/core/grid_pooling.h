// Blocks of 2^m cells per axis that become one row each, sorted along a curve.
//
//   fine row r lies in coarse row cluster[r], whose coordinate is floor(c[r] / 2^m)
//
// The coarse rows ascend along the curve, so that rows that are near in space are near in memory.
#pragma once

#include <memory>
#include <string_view>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/map_key.h"
#include "lattice/core/row_groups.h"
#include "lattice/kernels/cpu/geometry/layouts.h"

namespace lattice {

struct GridPooling {
  using Ptr = std::shared_ptr<const GridPooling>;
  CoordinateMapKey in, out;
  RowGroups::Ptr clusters;
  int64_t nbytes() const { return clusters->n_rows() * 4; }
};

// m of a stride 2^m, 1 to 2^10; else std::invalid_argument.
int stride_log2(int64_t stride, std::string_view operation);

// The blocks and their coordinates.
struct PooledCoords {
  CoordinateSet coords;
  RowGroups::Ptr clusters;
  int64_t stride;  // 2^m, or 1 where m exceeds the depth of the curve
};
PooledCoords pool_coords(const CoordinateSet& fine, cpu::Curve curve, int log2,
                         std::string_view operation);

}  // namespace lattice
