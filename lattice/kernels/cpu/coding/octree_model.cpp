#include "lattice/kernels/cpu/coding/octree_model.h"

#include <algorithm>

namespace lattice::cpu {
namespace {

// Cells of slot s that belong to mask m.
struct CellTable {
  std::array<std::array<uint64_t, 256>, kAround> cells{};
};
CellTable make_cells() {
  CellTable t;
  for (int s = 0; s < kAround; ++s)
    for (unsigned m = 0; m < 256; ++m)
      for (int k = 0; k < 8; ++k) {
        const int x = 2 * (s % 3 - 1) + (k & 1) + 1, y = 2 * (s / 3 % 3 - 1) + (k >> 1 & 1) + 1,
                  z = 2 * (s / 9 - 1) + (k >> 2) + 1;
        if ((m >> k & 1) && x >= 0 && x < 4 && y >= 0 && y < 4 && z >= 0 && z < 4)
          t.cells[static_cast<size_t>(s)][m] |= uint64_t{1} << (x + 4 * y + 16 * z);
      }
  return t;
}
const CellTable kCells = make_cells();

// The cube with axis 0, 1 or 2 reversed.
uint64_t mirror(uint64_t v, int axis) {
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
uint32_t mirror3(uint32_t v, int axis) {
  constexpr std::array<uint32_t, 3> low{0x1249249u, 0x1c0e07u, 0x1ffu},
      mid{0x2492492u, 0xe07038u, 0x3fe00u};
  constexpr std::array<int, 3> step{2, 6, 18};
  const auto a = static_cast<size_t>(axis);
  return (v & low[a]) << step[a] | (v & mid[a]) | (v >> step[a] & low[a]);
}

// Cells 1..3 of each axis as 27 bits.
uint32_t inner(uint64_t v) {
  uint32_t out = 0;
  for (int z = 0; z < 3; ++z)
    for (int y = 0; y < 3; ++y)
      out |= static_cast<uint32_t>(v >> (16 * (z + 1) + 4 * (y + 1) + 1) & 7) << (9 * z + 3 * y);
  return out;
}

constexpr uint32_t kFaces = 1u << 4 | 1u << 10 | 1u << 12 | 1u << 14 | 1u << 16 | 1u << 22;
constexpr uint32_t kCorners =
    1u | 1u << 2 | 1u << 6 | 1u << 8 | 1u << 18 | 1u << 20 | 1u << 24 | 1u << 26;
constexpr uint32_t kEdges = 0x7ffffffu & ~kFaces & ~kCorners & ~(1u << kSelf);
// Of the nodes around, those that touch the child at (2, 2, 2).
constexpr uint32_t kTouching =
    1u << 14 | 1u << 16 | 1u << 17 | 1u << 22 | 1u << 23 | 1u << 25 | 1u << 26;

uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
  uint64_t h = (a + uint64_t{0x9e3779b9u}) * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 29) ^ b) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 31) ^ c) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(h >> 32);
}

}  // namespace

OctreeModel::OctreeModel() : mixer_(kContexts, 8 * 28) {
  for (auto& table : tables_) table.resize(size_t{1} << kTableBits);
}

void OctreeModel::begin(const NodeView& view) {
  view_ = view;
  occupied_ = unknown_ = 0;
  nodes_ = 0;
  for (int s = 0; s < kAround; ++s) {
    const int32_t state = view.state[static_cast<size_t>(s)];
    if (state == -1 && s != kSelf) continue;
    nodes_ |= 1u << s;
    if (state < 0)
      unknown_ |= kCells.cells[static_cast<size_t>(s)][255];
    else
      occupied_ |= kCells.cells[static_cast<size_t>(s)][static_cast<size_t>(state)];
  }
}

void OctreeModel::known(int j, bool bit) {
  const uint64_t cell = kCells.cells[kSelf][size_t{1} << j];
  unknown_ &= ~cell;
  if (bit) occupied_ |= cell;
}

uint32_t OctreeModel::zero(int j, unsigned got) {
  uint64_t o = occupied_, u = unknown_;
  uint32_t nodes = nodes_;
  for (int axis = 0; axis < 3; ++axis)
    if (!(j >> axis & 1)) {
      o = mirror(o, axis);
      u = mirror(u, axis);
      nodes = mirror3(nodes, axis);
    }
  const uint32_t occ = inner(o), unk = inner(u) & ~(1u << kSelf);
  const auto prefix = static_cast<uint32_t>(1u << j | got);
  const auto side = static_cast<uint32_t>(j);
  const int n_all = std::popcount(occ), n_unk = std::popcount(unk);
  const uint32_t wide =
      static_cast<uint32_t>(std::popcount(o)) << 8 | static_cast<uint32_t>(std::popcount(u));
  const std::array<uint32_t, kContexts> contexts{
      hash(occ & kFaces, unk & kFaces, static_cast<uint32_t>(std::popcount(occ & kEdges))),
      hash(occ & (kFaces | kEdges), unk & kFaces, 1),
      hash(occ, unk & kFaces, nodes & kTouching),
      hash(nodes, prefix, 2),
      hash(nodes_ & kFaces, prefix, 3),
      hash(nodes & kTouching, prefix, occ & kFaces),
      hash(static_cast<uint32_t>(n_all), static_cast<uint32_t>(n_unk), side | (occ & kFaces) << 3),
      hash(view_.parent_mask, view_.index, prefix),
      hash(wide, occ & kFaces,
           static_cast<uint32_t>(std::popcount(nodes)) << 8 | static_cast<uint32_t>(n_unk)),
  };
  std::array<BitCounter*, kContexts> counters;
  for (size_t i = 0; i < kContexts; ++i)
    counters[i] = &tables_[i][contexts[i] >> (32 - kTableBits)];
  return mixer_.zero(counters, j * 28 + n_all);
}

}  // namespace lattice::cpu
