// Assigns points to the cells of a grid, in the float32 arithmetic of the detectors.
//
//   cell = floor((p - low) / size) per axis, each operation rounded to float32
//
// A point belongs to the grid if 0 <= cell < grid on every axis. Points come in their order. The
// first point of a cell makes a voxel, the last row so far; when there are max_voxels, points of
// new cells are dropped, while those of known cells still enter. A voxel that has max_points drops
// later ones. float64 arithmetic would give other cells to points on borders.
#pragma once

#include <array>
#include <cstdint>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

struct VoxelGrid {
  std::array<float, 3> low, size;
  std::array<int32_t, 3> cells;  // x, y, z
};
// How many points did not enter, by reason.
struct DroppedPoints {
  int64_t outside = 0;     // of the grid, or not a number
  int64_t full_voxel = 0;  // the voxel had max_points
  int64_t full_grid = 0;   // a new cell, but max_voxels were there
};
struct VoxelPoints {
  Buffer<int32_t> cells;   // (V, 3) as z, y, x
  Buffer<int32_t> counts;  // (V,) points that entered
  Buffer<int32_t> owner;   // (N,) voxel of a point's cell, also a full one; -1: none
  Buffer<int32_t> slot;    // (N,) its place in the voxel, -1: dropped
  int64_t n_voxels = 0;
  DroppedPoints dropped;
};
// points is (n, width), width >= 3. Negative limits mean none.
VoxelPoints voxelize_points(const float* points, int64_t n, int64_t width, const VoxelGrid& grid,
                            int64_t max_points, int64_t max_voxels);

// Values of the points in their slots: out is (V, slots, width), 0 in slots that are not used.
void fill_slots(const float* points, int64_t n, int64_t width, const VoxelPoints& found,
                int64_t slots, float* out);
// The sum of a voxel's points in their order / their number; out is (V, width).
void voxel_means(const float* points, int64_t n, int64_t width, const VoxelPoints& found,
                 float* out);

}  // namespace lattice::cpu
