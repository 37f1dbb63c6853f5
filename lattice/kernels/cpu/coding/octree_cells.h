// Bit arithmetic on the surroundings of an octree node, for the context models of both versions.
//
// Slot s = (dx + 1) + 3 (dy + 1) + 9 (dz + 1) names one of the 27 nodes around a node. Cells are
// the 4 x 4 x 4 children of the middle of these nodes, bit x + 4 y + 16 z.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lattice::cpu {

inline constexpr int kAround = 27;
inline constexpr int kSelf = 13;

// Cells of slot s that belong to mask m.
struct CellTable {
  CellTable();
  std::array<std::array<uint64_t, 256>, kAround> cells{};
};
extern const CellTable kCells;

// The cube with axis 0, 1 or 2 reversed.
inline uint64_t mirror(uint64_t v, int axis) {
  if (axis == 0) {
    v = (v & 0x5555555555555555u) << 1 | (v >> 1 & 0x5555555555555555u);
    return (v & 0x3333333333333333u) << 2 | (v >> 2 & 0x3333333333333333u);
  }
  if (axis == 1) {
    v = (v & 0x0f0f0f0f0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0f0f0f0f0fu);
    return (v & 0x00ff00ff00ff00ffu) << 8 | (v >> 8 & 0x00ff00ff00ff00ffu);
  }
  v = (v & 0x0000ffff0000ffffu) << 16 | (v >> 16 & 0x0000ffff0000ffffu);
  return v << 32 | v >> 32;
}
// The same for 3 x 3 x 3 bits.
inline uint32_t mirror3(uint32_t v, int axis) {
  constexpr std::array<uint32_t, 3> low{0x1249249u, 0x1c0e07u, 0x1ffu},
      mid{0x2492492u, 0xe07038u, 0x3fe00u};
  constexpr std::array<int, 3> step{2, 6, 18};
  const auto a = static_cast<size_t>(axis);
  return (v & low[a]) << step[a] | (v & mid[a]) | (v >> step[a] & low[a]);
}

// Cells 1..3 of each axis as 27 bits.
inline uint32_t inner(uint64_t v) {
  uint32_t out = 0;
  for (int z = 0; z < 3; ++z)
    for (int y = 0; y < 3; ++y)
      out |= static_cast<uint32_t>(v >> (16 * (z + 1) + 4 * (y + 1) + 1) & 7) << (9 * z + 3 * y);
  return out;
}

inline constexpr uint32_t kFaces = 1u << 4 | 1u << 10 | 1u << 12 | 1u << 14 | 1u << 16 | 1u << 22;
inline constexpr uint32_t kCorners =
    1u | 1u << 2 | 1u << 6 | 1u << 8 | 1u << 18 | 1u << 20 | 1u << 24 | 1u << 26;
inline constexpr uint32_t kEdges = 0x7ffffffu & ~kFaces & ~kCorners & ~(1u << kSelf);
// Of the nodes around, those that touch the child at (2, 2, 2).
inline constexpr uint32_t kTouching =
    1u << 14 | 1u << 16 | 1u << 17 | 1u << 22 | 1u << 23 | 1u << 25 | 1u << 26;

inline uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
  uint64_t h = (a + uint64_t{0x9e3779b9u}) * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 29) ^ b) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 31) ^ c) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(h >> 32);
}

}  // namespace lattice::cpu
