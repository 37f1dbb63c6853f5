/// @file
/// Preprocessing of a program: from a cloud to the input of a network, and from results back to
/// points.
///
///     crop_points:     points outside of a box become NaN, so that no voxel holds them
///     voxel_features:  the voxels of the finite points, with the features that
///                      `training.VoxelPipeline` of Python lists
///     to_points:       y[p] = values[rows[p]], or `fill` where rows[p] < 0
///
/// Lengths in the features are in voxels. Concrete, on the CPU, with the same bits on every
/// machine.
#pragma once

#include <mlx/utils.h>

#include <array>
#include <optional>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// points (N, 3), float32 or float64, with NaN in the rows that are not inside low <= p <= high.
/// The number of rows stays, so that results per point have their places.
LATTICE_API mx::array crop_points(const mx::array& points, const std::array<double, 3>& low,
                                  const std::array<double, 3>& high);

/// The voxels of a cloud, and the voxel of each point.
struct VoxelScan {
  SparseTensor tensor;  ///< one row per voxel, first seen first, 6 + W float32 features
  mx::array rows;       ///< (N,) int32: the voxel of each point; -1 where the point is not finite
};
/// Numbers of a whole cloud. With them, a part of the cloud gets the same voxels as the whole.
struct ScanFrame {
  std::array<double, 3> low{0, 0, 0};  ///< the low corner of the finite points
  float ground = 0;                    ///< the second percentile of z - low[2], in voxels
};
/// points (N, 3), float32 or float64; the low corner of the finite ones becomes the origin.
/// columns: (N,) or (N, k) numbers each, W together; uint8 is divided by 255, uint16 by 65535.
/// A feature vector is 1, the mean offset of the points from the center of the voxel (3), the
/// height above the second percentile of z divided by 10, log(1 + points) / 2, and the means of
/// the columns. Throws std::invalid_argument for shapes and dtypes that do not fit.
LATTICE_API VoxelScan voxel_features(const mx::array& points, const std::vector<mx::array>& columns,
                                     double voxel, mx::StreamOrDevice s = {},
                                     const std::optional<ScanFrame>& frame = std::nullopt);

/// values (V, ...) at rows (P,) int32 below V; fill where a row is negative.
LATTICE_API mx::array to_points(const mx::array& values, const mx::array& rows, double fill,
                                mx::StreamOrDevice s = {});

}  // namespace lattice
