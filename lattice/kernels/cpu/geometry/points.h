// Conversion of points to voxels and back.
//
//   q = (p - origin) / size, voxel = floor(q), all in the type of the points: float or double
//
// Also makes the orders of rows that sums over the points of a voxel need.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice::cpu {

// Where the lattice lies: its origin, the edges of a voxel, and what is added to q before floor (0,
// or 0.5 for the nearest lattice point).
struct VoxelFrame {
  std::array<double, 3> origin{0, 0, 0};
  std::array<double, 3> size{1, 1, 1};
  double shift = 0;
};

// coords[i] = (batch[i], floor(q + shift)) as int32; a null batch is 0. points is (n, 3). Returns
// the first row with a value that is not finite or whose voxel leaves int32, or -1.
int64_t quantize_points(const float* points, int64_t n, const int32_t* batch,
                        const VoxelFrame& frame, int32_t* coords);
int64_t quantize_points(const double* points, int64_t n, const int32_t* batch,
                        const VoxelFrame& frame, int32_t* coords);

// Rows of each distinct coordinate, ascending: those of distinct row d are rows[offsets[d] ..
// offsets[d + 1]].
struct Groups {
  Buffer<int32_t> offsets;
  Buffer<int32_t> rows;
};
Groups group_rows(const CoordIndex& index, const Distinct& distinct);

// The same from the group of each entry; entries with a negative group belong to none.
Groups group_entries(std::span<const int32_t> group, int64_t n_groups);

// Trilinear weights of the 8 lattice points around each point: weight = (wx * wy) * wz. Point p
// lies in cell cell_of[p], whose floor(q) is coords[p]. The table (cells, 8) holds the voxel row
// of corner (x * 2 + y) * 2 + z of each cell, or -1. The arrays rows and weights are (n, 8), slot x
// + 2 y + 4 z. A missing voxel gives row -1 and weight 0.
template <typename T>
void linear_weights(const T* points, int64_t n, const VoxelFrame& frame, const int32_t* coords,
                    const int32_t* cell_of, const int32_t* table, int32_t* rows, float* weights);

}  // namespace lattice::cpu
