// Sets of voxels as bytes, version 2: the octree of octree.h with the model of lidar_model.h and
// the network of lidar_net.h. A level of fewer than 64 nodes, and the root, go through the model
// alone.
#pragma once

#include <array>
#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/coding/lidar_net.h"
#include "lattice/kernels/cpu/coding/meter.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

struct LidarOptions {
  const LidarNet* net = nullptr;
  bool fast = false;                // the network's probabilities without the adaptive model
  std::array<int32_t, 3> sensor{};  // the voxel of the sensor
};

// Rows of int32 in Morton order, free of duplicates (std::invalid_argument otherwise), batch >= 0.
std::vector<uint8_t> encode_lidar(const CoordSpan& sorted, const LidarOptions& options,
                                  std::string_view operation, Meter meter = {});
// (n, 4) int32, with the same options. Throws std::invalid_argument for other bytes; memory is
// bounded by what the bytes read so far allow.
std::vector<int32_t> decode_lidar(Bytes data, const LidarOptions& options,
                                  std::string_view operation, Meter meter = {});

}  // namespace lattice::cpu
