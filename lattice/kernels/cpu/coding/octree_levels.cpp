#include "lattice/kernels/cpu/coding/octree_levels.h"

#include <bit>
#include <limits>

#include "lattice/kernels/cpu/coding/bit_model.h"

namespace lattice::cpu {

OctreeLevel octree_roots(uint32_t trees) {
  OctreeLevel level;
  for (uint32_t t = 0; t < trees; ++t) {
    level.nodes.push_back({t, 0, 0, 0});
    for (int s = 0; s < kAround; ++s)
      level.around.push_back(s == kSelf ? static_cast<int32_t>(t) : -1);
  }
  return level;
}

OctreeLevel octree_children(OctreeLevel& level, bool with_around) {
  OctreeLevel next;
  int64_t count = 0;
  level.first.resize(level.size());
  for (size_t i = 0; i < level.size(); ++i) {
    level.first[i] = static_cast<int32_t>(count);
    count += std::popcount(level.masks[i]);
  }
  next.nodes.reserve(static_cast<size_t>(count));
  if (with_around) next.around.resize(static_cast<size_t>(count) * kAround);
  int32_t* around = next.around.data();
  for (size_t i = 0; i < level.size(); ++i)
    for (unsigned rest = level.masks[i]; rest != 0; rest &= rest - 1) {
      const int k = std::countr_zero(rest);
      const auto& p = level.nodes[i];
      const std::array<int, 3> bit{k & 1, k >> 1 & 1, k >> 2};
      next.nodes.push_back({p[0], p[1] * 2 + static_cast<uint32_t>(bit[0]),
                            p[2] * 2 + static_cast<uint32_t>(bit[1]),
                            p[3] * 2 + static_cast<uint32_t>(bit[2])});
      if (!with_around) continue;
      for (int s = 0; s < kAround; ++s) {
        const int x = bit[0] + s % 3 - 1, y = bit[1] + s / 3 % 3 - 1,
                  z = bit[2] + s / 9 - 1;  // -1..2, from the parent
        const int slot = (x >> 1) + 1 + 3 * ((y >> 1) + 1) + 9 * ((z >> 1) + 1);
        const int32_t n = level.around[i * kAround + static_cast<size_t>(slot)];
        const unsigned child = static_cast<unsigned>((x & 1) + 2 * (y & 1) + 4 * (z & 1));
        const unsigned mask = n < 0 ? 0u : level.masks[static_cast<size_t>(n)];
        *around++ = (mask >> child & 1) ? level.first[static_cast<size_t>(n)] +
                                              std::popcount(mask & ((1u << child) - 1))
                                        : -1;
      }
    }
  return next;
}

OctreeCube OctreeCube::around(const CoordSpan& rows) {
  OctreeCube cube;
  uint64_t value_bits = 0, differ = 0;
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int a = 1; a < 4; ++a) {
      const int64_t c = rows.at(i, a);
      value_bits |= static_cast<uint64_t>(c < 0 ? ~c : c);
    }
  const int64_t half = int64_t{1} << std::bit_width(value_bits);
  for (int64_t i = 0; i < rows.rows; ++i)
    for (int a = 1; a < 4; ++a)
      differ |= static_cast<uint64_t>((rows.at(i, a) + half) ^ (rows.at(0, a) + half));
  cube.depth = static_cast<int>(std::bit_width(differ));
  for (int a = 1; a < 4; ++a)
    cube.base[static_cast<size_t>(a - 1)] =
        ((rows.at(0, a) + half) >> cube.depth << cube.depth) - half;
  return cube;
}

bool OctreeCube::possible() const {
  if (depth > 32) return false;
  const int64_t side = int64_t{1} << depth;
  bool aligned = true, middle = depth > 0;
  for (int64_t b : base) {
    aligned = aligned && (b & (side - 1)) == 0;
    middle = middle && b == -side / 2;
    if (b + side - 1 > std::numeric_limits<int32_t>::max()) return false;
  }
  return aligned || middle;
}

namespace {

void check_distinct(const CoordSpan& rows, std::string_view operation) {
  for (int64_t i = 1; i < rows.rows; ++i)
    if (rows.row(i) == rows.row(i - 1))
      throw std::invalid_argument("[" + std::string(operation) + "] coords found " +
                                  to_string(rows.row(i)) + " twice, expected distinct rows");
}

// The largest number of rows that so many coded bytes can describe. A node names at most 8 rows and
// has at least 7 bits. Each of these costs at least log2(65536 / (65536 - kLeast)) > kLeast / 65536
// bits. The cube may be one cell, so one row per tree is free.
uint64_t most_rows(uint64_t bytes, uint64_t trees) {
  return (bytes + 8) * 8 * 8 * (65536 / kLeast) / 7 + trees;
}

}  // namespace

Octree octree_of(const CoordSpan& sorted, std::string_view operation) {
  check_distinct(sorted, operation);
  Octree tree;
  tree.rows = sorted.rows;
  if (sorted.rows == 0) return tree;
  tree.cube = OctreeCube::around(sorted);
  std::vector<std::array<uint32_t, 4>> cells(static_cast<size_t>(sorted.rows));
  for (int64_t i = 0; i < sorted.rows; ++i) {
    const auto batch = static_cast<uint32_t>(sorted.at(i, 0));
    if (tree.batches.empty() || tree.batches.back() != batch) tree.batches.push_back(batch);
    cells[static_cast<size_t>(i)][0] = static_cast<uint32_t>(tree.batches.size() - 1);
    for (size_t a = 1; a < 4; ++a)
      cells[static_cast<size_t>(i)][a] =
          static_cast<uint32_t>(sorted.at(i, static_cast<int>(a)) - tree.cube.base[a - 1]);
  }
  // From the leaves up.
  tree.masks.resize(static_cast<size_t>(tree.cube.depth));
  for (size_t d = tree.masks.size(); d-- > 0;) {
    std::vector<uint8_t>& masks = tree.masks[d];
    size_t n = 0;
    for (const auto c : cells) {
      const std::array<uint32_t, 4> parent{c[0], c[1] >> 1, c[2] >> 1, c[3] >> 1};
      if (n == 0 || cells[n - 1] != parent) {
        cells[n++] = parent;
        masks.push_back(0);
      }
      masks.back() |= static_cast<uint8_t>(1u << ((c[1] & 1) + 2 * (c[2] & 1) + 4 * (c[3] & 1)));
    }
    cells.resize(n);
  }
  return tree;
}

void put_octree_head(std::vector<uint8_t>& out, const Octree& tree) {
  put(out, static_cast<uint64_t>(tree.rows));
  if (tree.rows == 0) return;
  put(out, static_cast<uint8_t>(tree.cube.depth));
  for (int64_t b : tree.cube.base) put(out, static_cast<uint32_t>(static_cast<int32_t>(b)));
  put(out, static_cast<uint32_t>(tree.batches.size()));
  for (uint32_t b : tree.batches) put(out, b);
}

Octree read_octree_head(ByteReader& reader, std::string_view operation) {
  Octree tree;
  const uint64_t rows = reader.number<uint64_t>();
  if (rows == 0) {
    if (!reader.rest().empty()) throw_bad_data(operation, "has bytes after its end");
    return tree;
  }
  tree.cube.depth = reader.number<uint8_t>();
  for (int64_t& b : tree.cube.base) b = static_cast<int32_t>(reader.number<uint32_t>());
  if (!tree.cube.possible()) throw_bad_data(operation, "names a cube outside int32");
  const uint64_t trees = reader.number<uint32_t>();
  const Bytes batches = reader.bytes(trees * 4);
  for (uint64_t t = 0; t < trees; ++t) {
    const uint32_t batch = get<uint32_t>(batches.data() + 4 * t);
    if (batch > INT32_MAX || (t > 0 && batch <= tree.batches.back()))
      throw_bad_data(operation, "has batches that do not ascend");
    tree.batches.push_back(batch);
  }
  if (trees == 0 || rows < trees || rows > INT32_MAX ||
      rows > most_rows(reader.rest().size(), trees))
    throw_bad_data(operation, "claims " + std::to_string(rows) + " rows, which it cannot hold");
  tree.rows = static_cast<int64_t>(rows);
  return tree;
}

std::vector<int32_t> octree_rows(const OctreeLevel& leaves, const Octree& tree,
                                 std::string_view operation) {
  if (static_cast<int64_t>(leaves.size()) != tree.rows)
    throw_bad_data(operation, "holds " + std::to_string(leaves.size()) + " rows, but claims " +
                                  std::to_string(tree.rows));
  std::vector<int32_t> out(leaves.size() * 4);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto& c = leaves.nodes[i];
    out[4 * i] = static_cast<int32_t>(tree.batches[c[0]]);
    for (size_t a = 1; a < 4; ++a)
      out[4 * i + a] = static_cast<int32_t>(tree.cube.base[a - 1] + c[a]);
  }
  return out;
}

}  // namespace lattice::cpu
