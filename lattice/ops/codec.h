// Voxels and their values as one compressed byte string: the file format of docs/codec.md.
//
// Lossless. Rows come back in Morton order (by batch, then as morton_order sorts them), attributes
// with them. Bytes that are no such file are std::invalid_argument, whatever they are, in memory
// proportional to them. Computed at once, on the CPU.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lattice/ops/entropy.h"

namespace lattice {

struct VoxelCloud {
  mx::array coords;  // (N, 4) int32, distinct rows
  // (N,) or (N, C <= 65535); uint8, int8, uint16, int16, uint32, int32, float16 or float32. Names
  // are distinct.
  std::vector<std::pair<std::string, mx::array>> attributes = {};
  double voxel_size = 1;  // point = origin + (voxel + 0.5) * voxel_size; carried, not used
  std::array<double, 3> origin{};
};
ByteString encode_points(const VoxelCloud& cloud, mx::StreamOrDevice s = {});
VoxelCloud decode_points(ByteSpan data, mx::StreamOrDevice s = {});

}  // namespace lattice
