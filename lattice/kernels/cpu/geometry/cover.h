// Targets so that every point lies within a radius of one: representatives of cells, and a net over
// what they leave out.
//
// A point is left out when no representative of its cloud lies within the radius. The points left
// out, ordered by (most neighbors left out within the radius first, farthest from the
// representative of its own cell first, lowest row first), are taken one after the other unless one
// taken before lies within the radius. Those taken lie farther than the radius from all
// representatives and from each other, and no point left out can be added: a maximal net. Distances
// are those of near_points: float32, inclusive.
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
