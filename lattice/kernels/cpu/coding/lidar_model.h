// The context model of codec version 2: bits of masks from 21 adaptive contexts and the network.
//
//   p = squash(mean over 5 sets of sum_i w_i s_i), then half of it from a last adaptive table
//
// As in octree_model.h, every context keeps a slow and a fast probability of its bit, and s_i is
// the stretched probability times its confidence. The contexts that are new look at the masks of
// single neighbors, at the 27 nodes around the parent, at range and direction from the sensor, at
// the azimuth of each child and its height over distance, where the beams of a scanner stand in
// fixed places (as in the angular mode of G-PCC), and at the logit of the network, which is one
// more input as well. Five sets of weights are selected, each by another part of the known context
// (Mahoney 2005). Integers, tables included, but for one exact square root of IEEE 754.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/coding/lidar_net.h"
#include "lattice/kernels/cpu/coding/meter.h"
#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {

inline constexpr int kWeightBits = 29;  // a weight of 1 is 2^29

// What the model has learned so far.
class LidarModel {
 public:
  static constexpr int kContexts = 21, kMostTableBits = 18;
  static constexpr int kInputs = 48;  // 2 per context, 2 of the network, a constant; then zeros
  static constexpr int kSets = 5;
  static constexpr int kLastSteps = 33, kLastRows = 256 * 16;

  struct Counter {
    uint16_t slow = 32768, fast = 32768, count = 0, check = 0;
  };

  // `rows` is the size of the cloud; a small cloud needs little memory.
  explicit LidarModel(int64_t rows);

  int table_bits;
  Buffer<Counter> counters;                    // kContexts tables of 2^table_bits
  std::array<Buffer<int32_t>, kSets> weights;  // kInputs for each choice
  Buffer<uint16_t> last;                       // (kLastRows, kLastSteps)
};

// One level to write or to read.
struct LidarLevel {
  OctreeLevel* level = nullptr;
  const OctreeLevel* parents = nullptr;  // null at the root
  const std::vector<Place>* places = nullptr;
  std::array<int64_t, 3> sensor{};  // its voxel, from the corner of the cube
  int depth = 0, shift = 0;         // a node has the side 2^shift
  const uint8_t* hidden = nullptr;  // of the network, (nodes, 32), or null
  const LidarNet* net = nullptr;
  bool fast = false;                // the network's probabilities alone, where it ran
  const uint8_t* given = nullptr;   // the masks to write
  RangeEncoder* encoder = nullptr;  // or
  RangeDecoder* decoder = nullptr;
  Meter* meter = nullptr;
  std::function<double(size_t)> share = {};  // share of the work that is done before node i
};
// Fills level->masks.
void code_lidar_level(LidarModel& model, const LidarLevel& call);

}  // namespace lattice::cpu
