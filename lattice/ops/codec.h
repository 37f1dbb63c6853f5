/// @file
/// Voxels and their values as one compressed byte string: the file format of docs/codec.md.
///
/// Lossless. Rows come back in Morton order (by batch, then as morton_order sorts them), with their
/// attributes. Other bytes raise std::invalid_argument, and decoding never takes more memory than
/// the size of the input accounts for. Everything is computed at once, on the CPU.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/ops/entropy.h"

namespace lattice {

/// Voxels with values.
struct VoxelCloud {
  mx::array coords;  ///< (N, 4) int32, distinct rows
  /// (N,) or (N, C <= 65535); uint8, int8, uint16, int16, uint32, int32, float16 or float32. Names
  /// are distinct.
  std::vector<std::pair<std::string, mx::array>> attributes = {};
  double voxel_size = 1;  ///< point = origin + (voxel + 0.5) * voxel_size; carried, not used
  std::array<double, 3> origin{};  ///< see voxel_size
};
/// A function that is called now and then, on the thread of the caller, with the share of the work
/// that is done, 0..1. An exception that it throws ends the work and reaches the caller.
using OnProgress = std::function<void(double)>;
/// How coordinates are coded.
struct EncodeOptions {
  /// "octree": version 1, an adaptive model for all clouds. "lidar": version 2, which adds a
  /// network for sweeps of spinning LiDARs. "auto": both, and the smaller file is kept.
  std::string model = "octree";
  bool fast = false;               ///< "lidar": the network without the adaptive model
  std::array<double, 3> sensor{};  ///< where the scanner stood, in the units of the points
};
/// The cloud as bytes. Throws std::invalid_argument for duplicate rows, names or other dtypes.
LATTICE_API ByteString encode_points(const VoxelCloud& cloud, mx::StreamOrDevice s = {},
                                     const OnProgress& on_progress = {},
                                     const EncodeOptions& options = {});
/// The cloud of the bytes. Throws std::invalid_argument for bytes that are no such file.
LATTICE_API VoxelCloud decode_points(ByteSpan data, mx::StreamOrDevice s = {},
                                     const OnProgress& on_progress = {});
/// How many voxels the file says that it holds; the rest is not looked at.
LATTICE_API int64_t encoded_rows(ByteSpan data);

}  // namespace lattice
