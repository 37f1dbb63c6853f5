/// @file
/// The results of operations on points: arrays with computed values and exactly as many rows as
/// needed, and the maps along which features are reduced.
#pragma once

#include <memory>
#include <string_view>

#include "lattice/core/row_map.h"

namespace lattice {

/// Points sorted into voxels: point p lies in voxel inverse_rows[p], voxel v holds counts[v]
/// points.
class LATTICE_API SparseQuantization {
 public:
  /// Checks shapes, dtypes and ranges, and that counts are the counts of inverse_rows.
  SparseQuantization(mx::array coords, mx::array active_rows, mx::array inverse_rows,
                     mx::array counts);
  /// From the results of a kernel, without checks: `points_of_voxel` is a sum over the points of
  /// each voxel.
  SparseQuantization(mx::array coords, mx::array inverse_rows, mx::array counts,
                     RowMap::Ptr points_of_voxel);

  mx::array coords;        ///< (M, 4) int32, first seen first
  mx::array active_rows;   ///< (1,) int32: M
  mx::array inverse_rows;  ///< (N,) int32
  mx::array counts;        ///< (M,) int32

  /// A sum over the points of each voxel, in ascending order of points.
  const RowMap::Ptr& points_of_voxel() const { return points_of_voxel_; }

 private:
  RowMap::Ptr points_of_voxel_;
};

/// Point p is the sum over slots c of weights[p, c] * value of voxel rows[p, c]; -1 = none.
class LATTICE_API PointVoxelMap {
 public:
  /// Checks shapes and dtypes. Throws std::invalid_argument.
  PointVoxelMap(mx::array rows, mx::array weights);
  mx::array rows;     ///< (P, 8) int32
  mx::array weights;  ///< (P, 8) float32
  /// The map onto points from n_voxels rows; throws std::invalid_argument when a row is not below
  /// n_voxels. Kept for the next call.
  RowMap::Ptr map(int64_t n_voxels, std::string_view operation) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lattice
