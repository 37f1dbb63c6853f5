// The levels of an octree over sorted voxels, and how a stream describes its cube. Both versions of
// the codec build on these.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/coding/octree_cells.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

// One level, nodes in Morton order.
struct OctreeLevel {
  std::vector<std::array<uint32_t, 4>> nodes;  // tree number, x, y, z in cells of the level
  std::vector<int32_t> around;  // 27 a node: the neighbors of its tree on this level, or -1
  std::vector<uint8_t> masks;
  std::vector<int32_t> first;  // position of the first child on the next level

  size_t size() const { return nodes.size(); }
};

OctreeLevel octree_roots(uint32_t trees);
// The children of a level whose masks are known; neighbors of a child are children of the neighbors
// of its parent.
OctreeLevel octree_children(OctreeLevel& level, bool with_around);

// The cube: c - base in [0, 2^depth) on every axis. Its cells in Morton order are coordinates in
// Morton order. This holds because base is a multiple of 2^depth, or -2^(depth - 1) where the rows
// lie on both sides of 0.
struct OctreeCube {
  int depth = 0;
  std::array<int64_t, 3> base{};

  static OctreeCube around(const CoordSpan& rows);
  bool possible() const;
};

// Trees, one per batch, and the masks of every level from the root down.
struct Octree {
  int64_t rows = 0;
  OctreeCube cube;
  std::vector<uint32_t> batches;
  std::vector<std::vector<uint8_t>> masks;
};
// Of rows in Morton order; rows that appear twice are std::invalid_argument.
Octree octree_of(const CoordSpan& sorted, std::string_view operation);

// Rows, cube and batches as bytes; nothing follows the number of rows if it is 0.
void put_octree_head(std::vector<uint8_t>& out, const Octree& tree);
// The reverse; masks stay empty. Refuses rows that the bytes behind the head cannot hold.
Octree read_octree_head(ByteReader& reader, std::string_view operation);
// Voxels (n, 4) int32 of the leaves, which must be as many as the head says.
std::vector<int32_t> octree_rows(const OctreeLevel& leaves, const Octree& tree,
                                 std::string_view operation);

}  // namespace lattice::cpu
