// Chooses targets such that every point lies within a radius of a target: representatives of cells,
// and a net over the points that these leave out.
//
// A point is left out when no representative of its cloud lies within the radius. The left-out
// points are ordered by three keys: most left-out neighbors within the radius, then largest
// distance to the representative of the own cell, then lowest row. In this order each point is
// taken, unless a point that was taken before lies within the radius. The taken points are a
// maximal net: they lie farther than the radius from all representatives and from each other, and
// no left-out point can be added. Distances are those of near_points: float32, inclusive.
#pragma once

#include "lattice/kernels/cpu/geometry/rulebook.h"

namespace lattice::cpu {

// `chosen` are the rows of the representatives by cell, `cell_of` the cell of each row. Rows of all
// targets: ordered by cloud, then representatives before added ones, then row; `offsets` (n_samples
// + 1) says where each cloud begins.
struct Cover {
  Buffer<int32_t> rows, offsets;
  int64_t n_added = 0;
};
Cover cover_points(const PointSpan& points, const int32_t* chosen, int64_t n_chosen,
                   const int32_t* cell_of, float radius);

}  // namespace lattice::cpu
