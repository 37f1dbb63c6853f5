// 1. One pass over the edges makes the masks, tile by tile of output positions.
// 2. A radix sort of (mask, row) makes the order, and its inverse the place of each position.
// 3. Each offset is a task. It fills its row of the map with -1, and writes one entry per edge
//    while this row is in the cache.
#include "lattice/kernels/cpu/geometry/sorted_map.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/base/sort.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kTile = 2048;  // positions whose masks are collected together, in the cache

// words[row] = mask << row_bits | row. Returns false when a list has two edges of one output.
bool make_words(const RelationLists& lists, int row_bits, Buffer<uint64_t>& words) {
  const int64_t n_k = lists.n_k();
  const TileBounds tiles = tile_bounds(lists, kTile);
  const int32_t* out_order = lists.out_rows();
  std::atomic<bool> once = true;
  parallel_for(tiles.n_tiles, [&](int64_t t) {
    const int64_t first = t * kTile, count = std::min(lists.n_out - first, kTile);
    uint32_t masks[kTile] = {};
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      const int64_t begin = tiles.bounds[t * n_k + k], end = tiles.bounds[(t + 1) * n_k + k];
      const uint32_t bit = uint32_t{1} << k;
      if (!list.out) {
        for (int64_t e = begin; e < end; ++e) masks[e - first] |= bit;
        continue;
      }
      uint32_t twice = 0;
      for (int64_t e = begin; e < end; ++e) {
        uint32_t& mask = masks[list.out[e] - first];
        twice |= mask & bit;
        mask |= bit;
      }
      if (twice) once = false;
    }
    for (int64_t p = 0; p < count; ++p) {
      const int64_t row = out_order ? out_order[first + p] : first + p;
      words[row] = uint64_t{masks[p]} << row_bits | static_cast<uint64_t>(row);
    }
  });
  return once;
}

}  // namespace

bool sorted_map(const RelationLists& lists, int32_t* map, int32_t* order, uint32_t* tile_masks) {
  const int64_t n = lists.n_out, n_k = lists.n_k();
  const int row_bits = n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1));
  Buffer<uint64_t> words(n), spare(n);
  if (!make_words(lists, row_bits, words)) return false;
  radix_sort(words, spare, row_bits, static_cast<int>(n_k));
  Buffer<int32_t> rank(n);  // of each row
  const uint64_t rows = (uint64_t{1} << row_bits) - 1;
  static_assert(kPiece % 16 == 0);
  std::fill_n(tile_masks, (n + 63) / 64 * 4, 0u);
  each_piece(n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      order[p] = static_cast<int32_t>(words[p] & rows);
      rank[order[p]] = static_cast<int32_t>(p);
      tile_masks[p / 16] |= static_cast<uint32_t>(words[p] >> row_bits);
    }
  });
  Buffer<int32_t> place(lists.out_order ? n : 0);  // of each position
  if (lists.out_order)
    each_piece(n, [&](size_t, int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) place[p] = rank[(*lists.out_order)[p]];
    });
  const int32_t* places = lists.out_order ? place.data() : rank.data();
  const int32_t* in_order = lists.in_rows();
  parallel_for(n_k, [&](int64_t k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    int32_t* to = map + k * n;
    std::fill_n(to, n, -1);
    for (int64_t e = 0; e < list.size; ++e) {
      const int32_t in = list.in_at(e);
      to[places[list.out_at(e)]] = in_order ? in_order[in] : in;
    }
  });
  return true;
}

}  // namespace lattice::cpu
