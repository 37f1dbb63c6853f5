// Makes triplets from continuous points: finds the points near each query, and the cell of the
// kernel that each of them falls into.
//
//   d = point - query, float32
//   near:  sqrt(dx^2 + dy^2 + dz^2) <= R (ball), or max(|dx|, |dy|, |dz|) <= R (cube)
//   tap:   l = clamp(round_half_even(d / grid) + ks / 2, 0, ks - 1) for each axis
//          k = (l_x ks + l_y) ks + l_z
//
// Points are sorted by cells a little larger than R. The 27 cells around a cell are a 3x3x3
// relation of cells (relations.h). Their points are laid side by side once for all queries of the
// cell. Cells are computed in float64 and have room for the rounding of d, so no neighbor is
// missed, also far from the origin. Edges never join two samples (clouds of a batch).
#pragma once

#include <cstdint>
#include <memory>

#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// Points (n, 3) of n_samples clouds; cloud s is rows offsets[s] .. offsets[s + 1].
struct PointSpan {
  const float* xyz = nullptr;
  int64_t n = 0;
  const int32_t* offsets = nullptr;
  int64_t n_samples = 0;
};

// First row with a coordinate that is not finite, or -1.
int64_t first_bad_point(const float* xyz, int64_t n);

// k of one offset; grid > 0, ks >= 1.
int32_t voxel_tap(float dx, float dy, float dz, float grid, int32_t ks);

struct Search {
  float radius = 0;
  bool cube = false;
};

// Neighbors of query q are rows[offsets[q]] .. rows[offsets[q + 1]], ascending; distance of each.
struct NearPoints {
  Buffer<int32_t> offsets;
  Buffer<int32_t> rows;
  Buffer<float> distances;
};
// Both throw std::overflow_error when a point is more than 2^31 cells from the origin,
// std::length_error with 2^31 neighbors.
NearPoints near_points(const PointSpan& points, const PointSpan& queries, const Search& search);

// Lists of the edges (point, query, tap) by tap, then query; positions are points and queries
// sorted by cell.
RelationLists point_lists(const PointSpan& points, const PointSpan& queries, const Search& search,
                          float grid, int32_t ks);

// Points by cells floor(p / cell), float32 division, ordered by sample, z, y, x.
struct PointCells {
  Buffer<int32_t> first;    // cell c is order[first[c]] .. order[first[c + 1]]
  Buffer<int32_t> order;    // rows, ascending inside a cell
  Buffer<int32_t> cells;    // (n_cells, 4): sample, x, y, z
  Buffer<int32_t> cell_of;  // of each row
};
PointCells point_cells(const PointSpan& points, float cell);

}  // namespace lattice::cpu
