// The sources of the rows of conv_tiles (conv.metal): positions first() .. end(), 64 per tile. Bit
// b of mask() says whether any of the 16 rows from `p` has offset k(word, b). Not a topic of its
// own.
#pragma once

#include <metal_simdgroup>

#include "lattice/kernels/portable/conv_sizes.h"

namespace lattice {
using namespace metal;

// One offset, every row with itself.
struct SameRows {
  int n_out;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return 1; }
  int k(int, int) const thread { return 0; }
  uint mask(int p, int, uint) const thread { return p < n_out ? 1u : 0u; }
  int in_row(int p, int) const thread { return p; }
  int out_row(int p) const thread { return p; }
};

// map (n_out, n_k), -1: none; masks (n_out, words).
template <typename M, typename K>
struct MappedRows {
  M map;
  K masks;
  int n_out, n_k;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return (n_k + 31) / 32; }
  int k(int word, int bit) const thread { return 32 * word + bit; }
  uint mask(int p, int word, uint lane) const thread {
    const int row = p + int(lane);
    return simd_or(
        lane < 16 && row < n_out ? uint(masks[size_t(row) * size_t(words()) + size_t(word)]) : 0u);
  }
  int in_row(int p, int k) const thread { return map[size_t(p) * size_t(n_k) + size_t(k)]; }
  int out_row(int p) const thread { return p; }
};

template <typename M, typename K>
METAL_FUNC MappedRows<M, K> mapped_rows(M map, K masks, ConvSizes sizes) {
  return {map, masks, sizes.n_out, sizes.n_k};
}

// Rows sorted by mask: map (n_k, n_out) of sorted rows, masks one word for each 16 of them, order
// their place in y.
template <typename M, typename K, typename O>
struct SortedRows {
  M map;
  K masks;
  O order;
  int n_out;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return 1; }
  int k(int, int bit) const thread { return bit; }
  uint mask(int p, int, uint) const thread { return masks[p / 16]; }
  int in_row(int p, int k) const thread { return map[size_t(k) * size_t(n_out) + size_t(p)]; }
  int out_row(int p) const thread { return order[p]; }
};

template <typename M, typename K, typename O>
METAL_FUNC SortedRows<M, K, O> sorted_rows(M map, K masks, O order, ConvSizes sizes) {
  return {map, masks, order, sizes.n_out};
}

// One edge for every output row, edges by offset: a tile is a part of the list of one offset.
template <typename I, typename O>
struct ListedRows {
  I in_rows;
  O out_rows;
  int offset, from, to;
  int first(int) const thread { return from; }
  int end() const thread { return to; }
  int words() const thread { return 1; }
  int k(int, int) const thread { return offset; }
  uint mask(int p, int, uint) const thread { return p < to ? 1u : 0u; }
  int in_row(int p, int) const thread { return in_rows[p]; }
  int out_row(int p) const thread { return out_rows[p]; }
};

// parts: four numbers for each tile, offset, begin, end and one that is not read.
template <typename I, typename O, typename P>
METAL_FUNC ListedRows<I, O> listed_rows(I in_rows, O out_rows, P parts, uint3 tile) {
  return {in_rows, out_rows, parts[4 * tile.x], parts[4 * tile.x + 1], parts[4 * tile.x + 2]};
}

// Edges of 64 positions and offset k: bounds[tile, k] .. bounds[tile + 1, k] of in_rows and
// positions, ascending; order is the place of a position in y. A row may have several edges of one
// offset, a bucket: their rows of x are added first.
template <typename B, typename I, typename P, typename O>
struct BucketRows {
  B bounds;
  I in_rows;
  P positions;
  O order;
  int n_out, n_k;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return (n_k + 31) / 32; }
  int k(int word, int bit) const thread { return 32 * word + bit; }
  int bound(int tile, int k) const thread { return bounds[size_t(tile) * size_t(n_k) + size_t(k)]; }
  // The first edge of offset k in the tile of p whose position is at least p.
  int edge(int p, int k) const thread {
    int from = bound(p / 64, k), to = bound(p / 64 + 1, k);
    while (from < to) {
      const int middle = from + (to - from) / 2;
      if (positions[middle] < p)
        from = middle + 1;
      else
        to = middle;
    }
    return from;
  }
  bool before(int e, int p, int k, int q) const thread {
    return e < bound(p / 64 + 1, k) && positions[e] < q;
  }
  uint mask(int p, int word, uint lane) const thread {
    const int k = 32 * word + int(lane);
    const bool any = k < n_k && p < n_out && before(edge(p, k), p, k, p + 16);
    return simd_or(any ? 1u << lane : 0u);
  }
  // Of a bucket: its first edge.
  int in_row(int p, int k) const thread {
    const int e = edge(p, k);
    return before(e, p, k, p + 1) ? e : -1;
  }
  int out_row(int p) const thread { return order[p]; }
};

template <typename B, typename I, typename P, typename O>
METAL_FUNC BucketRows<B, I, P, O> bucket_rows(B bounds, I in_rows, P positions, O order,
                                              ConvSizes sizes) {
  return {bounds, in_rows, positions, order, sizes.n_out, sizes.n_k};
}

}  // namespace lattice
