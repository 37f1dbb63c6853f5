#include "lattice/kernels/cpu/coding/octree_model.h"

#include <algorithm>

namespace lattice::cpu {
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
