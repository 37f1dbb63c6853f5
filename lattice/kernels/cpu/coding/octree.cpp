#include "lattice/kernels/cpu/coding/octree.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/kernels/cpu/coding/octree_model.h"
#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {
namespace {

// One level, nodes in Morton order.
struct Level {
  std::vector<std::array<uint32_t, 4>> nodes;  // tree number, x, y, z in cells of the level
  std::vector<int32_t> around;  // 27 a node: the neighbors of its tree on this level, or -1
  std::vector<uint8_t> masks;
  std::vector<int32_t> first;  // position of the first child on the next level

  size_t size() const { return nodes.size(); }
};

Level roots(uint32_t trees) {
  Level level;
  for (uint32_t t = 0; t < trees; ++t) {
    level.nodes.push_back({t, 0, 0, 0});
    for (int s = 0; s < kAround; ++s)
      level.around.push_back(s == kSelf ? static_cast<int32_t>(t) : -1);
  }
  return level;
}

// The children of a level whose masks are known; neighbors of a child are children of the neighbors
// of its parent.
Level children(Level& level, bool with_around) {
  Level next;
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

// Codes the masks of one level; given(i) is the mask to write, done(i) is called for each node.
template <typename Given, typename Code, typename Done>
void code_level(OctreeModel& model, Level& level, const Level* parents, const Given& given,
                const Code& code, const Done& done) {
  level.masks.resize(level.size());
  size_t parent = 0;
  unsigned rest = parents ? parents->masks[0] : 0;
  for (size_t i = 0; i < level.size(); ++i) {
    NodeView view;
    for (size_t s = 0; s < kAround; ++s) {
      const int32_t n = level.around[i * kAround + s];
      view.state[s] = n < 0                         ? -1
                      : n < static_cast<int32_t>(i) ? int32_t{level.masks[static_cast<size_t>(n)]}
                                                    : -2;
    }
    if (parents) {
      while (rest == 0) rest = parents->masks[++parent];
      view.parent_mask = parents->masks[parent];
      view.index = static_cast<uint8_t>(std::countr_zero(rest));
      rest &= rest - 1;
    }
    level.masks[i] = model.mask(view, given(i), code);
    done(i);
  }
}

// The cube: c - base in [0, 2^depth) on every axis. Its cells in Morton order are coordinates in
// Morton order. This holds because base is a multiple of 2^depth, or -2^(depth - 1) where the rows
// lie on both sides of 0.
struct Cube {
  int depth = 0;
  std::array<int64_t, 3> base{};

  static Cube around(const CoordSpan& rows) {
    Cube cube;
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
  bool possible() const {
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
};

void check_distinct(const CoordSpan& rows, std::string_view operation) {
  for (int64_t i = 1; i < rows.rows; ++i)
    if (rows.row(i) == rows.row(i - 1))
      throw std::invalid_argument("[" + std::string(operation) + "] coords found " +
                                  to_string(rows.row(i)) + " twice, expected distinct rows");
}

// The most rows that coded bytes can tell. A node names at most 8 rows and has at least 7 bits.
// Each of these costs at least log2(65536 / (65536 - kLeast)) > kLeast / 65536 bits. The cube may
// be one cell, so one row per tree is free.
uint64_t most_rows(uint64_t bytes, uint64_t trees) {
  return (bytes + 8) * 8 * 8 * (65536 / kLeast) / 7 + trees;
}

// Trees, one per batch, and the masks of every level from the root down.
struct Trees {
  std::vector<uint32_t> batches;
  std::vector<std::vector<uint8_t>> masks;
};

Trees trees_of(const CoordSpan& sorted, const Cube& cube) {
  Trees trees;
  std::vector<std::array<uint32_t, 4>> cells(static_cast<size_t>(sorted.rows));
  for (int64_t i = 0; i < sorted.rows; ++i) {
    const auto batch = static_cast<uint32_t>(sorted.at(i, 0));
    if (trees.batches.empty() || trees.batches.back() != batch) trees.batches.push_back(batch);
    cells[static_cast<size_t>(i)][0] = static_cast<uint32_t>(trees.batches.size() - 1);
    for (size_t a = 1; a < 4; ++a)
      cells[static_cast<size_t>(i)][a] =
          static_cast<uint32_t>(sorted.at(i, static_cast<int>(a)) - cube.base[a - 1]);
  }
  trees.masks.resize(static_cast<size_t>(cube.depth));
  for (size_t d = trees.masks.size(); d-- > 0;) {  // from the leaves up
    std::vector<uint8_t>& masks = trees.masks[d];
    size_t n = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto c = cells[i];
      const std::array<uint32_t, 4> parent{c[0], c[1] >> 1, c[2] >> 1, c[3] >> 1};
      if (n == 0 || cells[n - 1] != parent) {
        cells[n++] = parent;
        masks.push_back(0);
      }
      masks.back() |= static_cast<uint8_t>(1u << ((c[1] & 1) + 2 * (c[2] & 1) + 4 * (c[3] & 1)));
    }
    cells.resize(n);
  }
  return trees;
}

}  // namespace

std::vector<uint8_t> encode_octree(const CoordSpan& sorted, std::string_view operation,
                                   Meter meter) {
  check_distinct(sorted, operation);
  std::vector<uint8_t> out;
  put(out, static_cast<uint64_t>(sorted.rows));
  if (sorted.rows == 0) return out;
  const Cube cube = Cube::around(sorted);
  put(out, static_cast<uint8_t>(cube.depth));
  for (int64_t b : cube.base) put(out, static_cast<uint32_t>(static_cast<int32_t>(b)));

  const auto [batches, masks] = trees_of(sorted, cube);
  put(out, static_cast<uint32_t>(batches.size()));
  for (uint32_t b : batches) put(out, b);

  size_t nodes = 0, before = 0;  // of all levels, and of the levels above this one
  for (const auto& level : masks) nodes += level.size();
  RangeEncoder coder;
  OctreeModel model;
  Level level = roots(static_cast<uint32_t>(batches.size())), parents;
  for (size_t d = 0; d < masks.size(); ++d) {
    code_level(
        model, level, d ? &parents : nullptr, [&](size_t i) { return masks[d][i]; },
        [&](uint32_t zero, bool bit) {
          coder.encode_bit(bit, zero);
          return bit;
        },
        [&](size_t i) {
          meter.next([&] { return static_cast<double>(before + i) / static_cast<double>(nodes); });
        });
    before += level.size();
    if (d + 1 == masks.size()) break;
    Level next = children(level, true);
    parents = std::move(level);
    level = std::move(next);
  }
  const std::vector<uint8_t> coded = coder.finish();
  put_bytes(out, coded);
  return out;
}

std::vector<int32_t> decode_octree(Bytes data, std::string_view operation, Meter meter) {
  ByteReader reader(data, operation);
  const uint64_t rows = reader.number<uint64_t>();
  if (rows == 0) {
    if (!reader.rest().empty()) throw_bad_data(operation, "has bytes after its end");
    return {};
  }
  Cube cube;
  cube.depth = reader.number<uint8_t>();
  for (int64_t& b : cube.base) b = static_cast<int32_t>(reader.number<uint32_t>());
  if (!cube.possible()) throw_bad_data(operation, "names a cube outside int32");
  const uint64_t trees = reader.number<uint32_t>();
  const Bytes batches = reader.bytes(trees * 4);
  for (uint64_t t = 0; t < trees; ++t) {
    const uint32_t batch = get<uint32_t>(batches.data() + 4 * t);
    if (batch > INT32_MAX || (t > 0 && batch <= get<uint32_t>(batches.data() + 4 * t - 4)))
      throw_bad_data(operation, "has batches that do not ascend");
  }
  if (trees == 0 || rows < trees || rows > INT32_MAX ||
      rows > most_rows(reader.rest().size(), trees))
    throw_bad_data(operation, "claims " + std::to_string(rows) + " rows, which it cannot hold");

  RangeDecoder coder(reader.rest(), operation);
  OctreeModel model;
  Level level = roots(static_cast<uint32_t>(trees)), parents;
  for (int d = 0; d < cube.depth; ++d) {
    code_level(
        model, level, d ? &parents : nullptr, [](size_t) { return uint8_t{0}; },
        [&](uint32_t zero, bool) { return coder.decode_bit(zero); },
        [&](size_t) { meter.next([&] { return coder.share(); }); });
    uint64_t count = 0;
    for (uint8_t mask : level.masks) count += static_cast<uint64_t>(std::popcount(mask));
    if (count > rows) throw_bad_data(operation, "holds more rows than it claims");
    Level next = children(level, d + 1 < cube.depth);
    parents = std::move(level);
    level = std::move(next);
  }
  coder.finish();
  if (level.size() != rows)
    throw_bad_data(operation, "holds " + std::to_string(level.size()) + " rows, but claims " +
                                  std::to_string(rows));
  std::vector<int32_t> out(level.size() * 4);
  for (size_t i = 0; i < level.size(); ++i) {
    const auto& c = level.nodes[i];
    out[4 * i] = static_cast<int32_t>(get<uint32_t>(batches.data() + size_t{4} * c[0]));
    for (size_t a = 1; a < 4; ++a) out[4 * i + a] = static_cast<int32_t>(cube.base[a - 1] + c[a]);
  }
  return out;
}

}  // namespace lattice::cpu
