/// @file
/// Assigns points to the cells of a grid, as detectors do. Results are concrete: they are computed
/// on the CPU when the function is called, and have no derivative.
///
///     cell = floor((p - low) / size) per axis, in float32
///     a point is kept if 0 <= cell < round((high - low) / size)
///
/// Points come in their order, and the first point of a cell makes a voxel. When max_voxels exist,
/// points of new cells are dropped; a voxel with max_points drops later ones. What was dropped is
/// counted.
#pragma once

#include <array>
#include <cstdint>

#include "lattice/core/names.h"

namespace lattice {

/// The voxels of a cloud (N, F). V voxels, in the order of their first points.
struct PointVoxels {
  mx::array voxels;        ///< (V, max_points, F), 0 in free slots; (V, 0, F) without a limit
  mx::array mean;          ///< (V, F): sum of the points that entered / their number
  mx::array coords;        ///< (V, 3) int32: z, y, x
  mx::array counts;        ///< (V,) int32: points that entered
  mx::array owner;         ///< (N,) int32: voxel of each point's cell, also a full one; -1: none
  int64_t outside = 0;     ///< points outside of the grid or not finite
  int64_t full_voxel = 0;  ///< points of voxels that had max_points
  int64_t full_grid = 0;   ///< points of new cells when there were max_voxels

  /// (3,) int32: outside, full_voxel, full_grid.
  LATTICE_API mx::array dropped() const;
};

/// points (N, F >= 3) begin with x, y, z. Limits of -1 mean none. Throws std::invalid_argument for
/// another shape and for a grid without cells or with more than 2^20 on an axis.
LATTICE_API PointVoxels point_voxels(const mx::array& points, const std::array<double, 3>& low,
                                     const std::array<double, 3>& high,
                                     const std::array<double, 3>& size, int64_t max_points = -1,
                                     int64_t max_voxels = -1);

}  // namespace lattice
