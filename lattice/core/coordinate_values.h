// What operations on coordinate sets return: plain values, concrete arrays with exactly the rows
// they need.
#pragma once

#include <mlx/array.h>

namespace lattice {

namespace mx = mlx::core;

// coords[p] = given[order[p]] and given[r] = coords[inverse_rows[r]].
struct CoordinateOrdering {
  mx::array coords;        // (N, 4)
  mx::array order;         // (N,) int32
  mx::array inverse_rows;  // (N,) int32
};

// Row i joins lhs row lhs_rows[i] and rhs row rhs_rows[i], -1 where that side has none.
struct SparseAlignment {
  mx::array coords;       // (M, 4)
  mx::array active_rows;  // (1,) int32: M
  mx::array lhs_rows;     // (M,) int32
  mx::array rhs_rows;     // (M,) int32
};

// Parents floor(c / 2) of N rows: bit (x & 1) + 2 (y & 1) + 4 (z & 1) of a parent's occupancy is
// set where it has that child.
struct SparseOccupancy {
  mx::array coords;         // (P, 4), first seen first
  mx::array active_rows;    // (1,) int32: P
  mx::array occupancy;      // (P,) uint8
  mx::array parent_rows;    // (N,) int32
  mx::array child_indices;  // (N,) int32: the bit of each row
};

// Children of P parents, in the order of their parents and then of their bits.
struct OccupancyExpansion {
  mx::array coords;         // (M, 4)
  mx::array active_rows;    // (1,) int32: M
  mx::array parent_rows;    // (M,) int32
  mx::array child_indices;  // (M,) int32
};

}  // namespace lattice
