// The network of codec version 2, which predicts the masks of a level in exact integers.
//
//   x = clamp(H_above + mask table)              3x3x3 block on the level above
//   u = clamp(up[child](x[parent]) + place)      two 3x3x3 blocks on the level; the result is H
//   h = head(H)
//   logit of bit j after the bits before it = (bits[prefix] h + constant[prefix]) >> 7
//
// clamp is to 0..255, prefix = 2^j + the bits before, and a logit is 256 ln(p1 / p0). A block is
// two convolutions with a residual, int_conv.h. H is handed down from level to level (as in ELiC,
// arXiv 2511.14070); `place` is a sum of tables of range and direction from the sensor. The network
// is trained by scripts/train_lidar_codec.py, and docs/codec.md describes its file.
//
// Activations are u8 and weights s8. No sum reaches 2^24, which is checked when a network is read.
// So any order of summation, and float32 as well, gives the same numbers on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/coding/octree_levels.h"
#include "lattice/kernels/cpu/features/conv_plan.h"
#include "lattice/kernels/cpu/features/int_conv.h"

namespace lattice::cpu {

// Where a node lies as seen from the sensor.
struct Place {
  uint8_t range = 0;                   // about 4 log2(distance in nodes), 0..63
  std::array<uint8_t, 3> direction{};  // 0..32 from -1 to 1, of the longest axis
};
// Nodes of side 2^shift voxels; `sensor` is a voxel of the cube, or outside of it.
std::vector<Place> places_of(const OctreeLevel& level, const std::array<int64_t, 3>& sensor,
                             int shift);

class LidarNet {
 public:
  static constexpr int kChannels = 32;
  static constexpr size_t kLeastNodes = 64;  // of a level that the network sees

  // Throws std::invalid_argument for bytes that are no network, or whose sums could reach 2^24.
  explicit LidarNet(Bytes file);
  // The network that the library contains, read once; and the bytes of its file.
  static const LidarNet& shipped();
  static Bytes shipped_file();
  // A checksum of the file.
  uint64_t identity() const { return identity_; }

  // The state that one level hands to the next.
  struct Handed {
    Buffer<uint8_t> features;  // (nodes, kChannels); empty before the first level
    RelationLists lists;
    TileBounds bounds;
  };
  // h of each node of `level`, (nodes, kChannels). The masks of `above` are known. `handed` was
  // made for `above`, or is empty, and becomes that of `level`.
  Buffer<uint8_t> run(const OctreeLevel& above, const OctreeLevel& level,
                      const std::vector<Place>& places, Handed& handed) const;

  // (256, kChannels) and (256).
  const int16_t* bits() const { return bits_.data(); }
  const int32_t* constants() const { return constants_.data(); }

 private:
  struct Block {
    IntWeight first, second;
  };
  void add_block(Buffer<uint8_t>& x, const Block& block, const Handed& on) const;
  Buffer<uint8_t> children(const OctreeLevel& above, const Buffer<uint8_t>& x,
                           const OctreeLevel& level, const std::vector<Place>& places) const;

  uint64_t identity_ = 0;
  std::vector<int16_t> masks_, ranges_, directions_;  // tables of kChannels columns
  std::vector<IntWeight> up_;                         // one
  std::vector<Block> blocks_;                         // three
  std::vector<IntWeight> head_;                       // one
  std::vector<int16_t> bits_;
  std::vector<int32_t> constants_;
};

}  // namespace lattice::cpu
