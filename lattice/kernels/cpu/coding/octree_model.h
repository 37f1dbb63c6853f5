// The context model of octree.h, made from what is known around a node when the bits of its mask
// are coded.
//
// The node is the middle of 3 x 3 x 3 nodes. Its children and the cells around them are a cube of 4
// x 4 x 4 cells. One 64-bit word holds the cells known to be occupied, another one those not known
// yet. For child j the cube is mirrored so that the child lies at (2, 2, 2). Then the 27 cells
// around the child have the same meaning for all j, and share their statistics.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/coding/bit_model.h"
#include "lattice/kernels/cpu/coding/octree_cells.h"

namespace lattice::cpu {

// What is known around one node.
struct NodeView {
  std::array<int32_t, kAround>
      state{};  // -1 no node; -2 a node whose mask is not known yet; else its mask
  uint8_t parent_mask = 0;
  uint8_t index = 0;  // of the node in its parent
};

class OctreeModel {
 public:
  OctreeModel();
  // Codes the mask of one node: code(zero, bit) writes the bit and returns it, or reads it; `mask`
  // is what will be written, 0 when reading. Returns the mask, never 0.
  template <typename Code>
  uint8_t mask(const NodeView& view, uint8_t given, const Code& code) {
    begin(view);
    unsigned got = 0;
    for (int j = 0; j < 8; ++j) {
      if (j == 7 && got == 0) return 128;  // a node has a child
      const bool bit = code(zero(j, got), (given >> j & 1) != 0);
      mixer_.update(bit);
      got |= static_cast<unsigned>(bit) << j;
      known(j, bit);
    }
    return static_cast<uint8_t>(got);
  }

 private:
  static constexpr int kContexts = 9;
  static constexpr int kTableBits = 16;

  void begin(const NodeView& view);
  uint32_t zero(int j, unsigned got);
  void known(int j, bool bit);

  uint64_t occupied_ = 0, unknown_ = 0;
  uint32_t nodes_ = 0;  // bit per slot
  NodeView view_;
  std::array<std::vector<BitCounter>, kContexts> tables_;
  BitMixer mixer_;
};

}  // namespace lattice::cpu
