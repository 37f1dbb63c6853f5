// Makes new targets: the voxels of a stencil around the voxel of each point.
//
//   v = floor(p / cell) float32,  target of (p, k) = scale * v + stencil[k]
//
// Targets are the distinct ones of each cloud, ordered by cloud, z, y, x. Each point has one edge
// with every k, N * K in all.
#pragma once

#include "lattice/kernels/cpu/geometry/rulebook.h"

namespace lattice::cpu {

struct Generated {
  RelationLists lists;    // n_in points, n_out targets; positions of points are by cell
  Buffer<int32_t> cells;  // (n_out, 4): sample, x, y, z
};
// stencil (n_k, 3). std::overflow_error when a target leaves int32, std::length_error with 2^31
// edges or candidates.
Generated generate_targets(const PointSpan& points, float cell, int32_t scale,
                           const int32_t* stencil, int64_t n_k);

}  // namespace lattice::cpu
