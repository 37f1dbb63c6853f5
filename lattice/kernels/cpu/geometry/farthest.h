// Farthest point sampling (Eldar et al., "The farthest point strategy for progressive image
// sampling", 1997): each sample is the point whose distance to all samples before it is largest.
//
//   d2(p) = min over samples s of (dx * dx + dy * dy) + dz * dz in float32
//   next sample = the point with the largest d2, of equal ones the lowest row
//
// Points lie in the leaves of a kd-tree. A leaf whose box is at least as far from a new sample as
// the largest d2 in the leaf keeps all its d2. The bound of a box is computed with the same
// monotone operations, so the result is that of comparing all points.
#pragma once

#include <cstdint>

namespace lattice::cpu {

// rows[0] = first; rows[1 ..] are the samples that follow. distances[i] is d2 of sample i when it
// was taken (infinity for the first). The points (n, 3) are finite; 1 <= count <= n, 0 <= first <
// n.
void farthest_points(const float* points, int64_t n, int64_t first, int64_t count, int32_t* rows,
                     float* distances);

}  // namespace lattice::cpu
