// Relations as one writes them first: a std::unordered_map from coordinate to row, one look-up per
// output row and offset. What the relation benchmarks compare with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lattice::bench {

using Row = std::array<int32_t, 4>;  // batch, x, y, z

// One multiplication per number.
struct RowHash {
  size_t operator()(const Row& row) const {
    uint64_t h = 0;
    for (int32_t v : row) h = (h ^ static_cast<uint32_t>(v)) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(h ^ h >> 32);
  }
};

struct PlainRelation {
  std::vector<Row> out;  // empty for submanifold: the input's own rows
  std::vector<int32_t> in_rows, out_rows, kernel_ids;

  void add(int32_t in, int32_t o, int32_t k) {
    in_rows.push_back(in);
    out_rows.push_back(o);
    kernel_ids.push_back(k);
  }
};

inline Row row_at(std::span<const int32_t> coords, size_t i) {
  return {coords[i * 4], coords[i * 4 + 1], coords[i * 4 + 2], coords[i * 4 + 3]};
}

inline std::unordered_map<Row, int32_t, RowHash> rows_by_coordinate(
    std::span<const int32_t> coords) {
  std::unordered_map<Row, int32_t, RowHash> rows;
  rows.reserve(coords.size() / 4);
  for (size_t i = 0; i < coords.size() / 4; ++i)
    rows.emplace(row_at(coords, i), static_cast<int32_t>(i));
  return rows;
}

// 3x3x3, edges by output row, then offset.
inline PlainRelation plain_submanifold(std::span<const int32_t> coords) {
  const auto rows = rows_by_coordinate(coords);
  PlainRelation r;
  for (size_t o = 0; o < coords.size() / 4; ++o) {
    const Row c = row_at(coords, o);
    int32_t k = 0;
    for (int32_t x = -1; x <= 1; ++x)
      for (int32_t y = -1; y <= 1; ++y)
        for (int32_t z = -1; z <= 1; ++z, ++k)
          if (const auto hit = rows.find({c[0], c[1] + x, c[2] + y, c[3] + z}); hit != rows.end())
            r.add(hit->second, static_cast<int32_t>(o), k);
  }
  return r;
}

// 2x2x2, stride 2: the distinct parents first, then 8 look-ups for each. Edges by output row, then
// offset.
inline PlainRelation plain_strided(std::span<const int32_t> coords) {
  const auto rows = rows_by_coordinate(coords);
  std::unordered_set<Row, RowHash> seen;
  PlainRelation r;
  for (size_t i = 0; i < coords.size() / 4; ++i) {
    const Row c = row_at(coords, i);
    const Row parent{c[0], c[1] >> 1, c[2] >> 1, c[3] >> 1};
    if (seen.insert(parent).second) r.out.push_back(parent);
  }
  for (size_t o = 0; o < r.out.size(); ++o) {
    const Row& c = r.out[o];
    for (int32_t k = 0; k < 8; ++k) {
      const auto hit =
          rows.find({c[0], c[1] * 2 + (k >> 2), c[2] * 2 + (k >> 1 & 1), c[3] * 2 + (k & 1)});
      if (hit != rows.end()) r.add(hit->second, static_cast<int32_t>(o), k);
    }
  }
  return r;
}

// The same edges in input order, by a shortcut for size == stride: each input row has exactly one
// parent.
inline PlainRelation plain_parents(std::span<const int32_t> coords) {
  std::unordered_map<Row, int32_t, RowHash> parents;
  PlainRelation r;
  for (size_t i = 0; i < coords.size() / 4; ++i) {
    const Row c = row_at(coords, i);
    const Row parent{c[0], c[1] >> 1, c[2] >> 1, c[3] >> 1};
    const auto [hit, fresh] = parents.try_emplace(parent, static_cast<int32_t>(parents.size()));
    if (fresh) r.out.push_back(parent);
    r.add(static_cast<int32_t>(i), hit->second, ((c[1] & 1) * 2 + (c[2] & 1)) * 2 + (c[3] & 1));
  }
  return r;
}

}  // namespace lattice::bench
