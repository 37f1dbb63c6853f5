#include "lattice/kernels/cpu/geometry/edges.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kTile = 256;       // rows whose edges are collected together, in the cache
constexpr int64_t kSlots = 1 << 14;  // edges that a tile has room for without counting
constexpr int64_t kAhead = 16;       // rows whose edges are fetched early
constexpr int64_t kOver = 4;         // copies move four values at a time

int32_t row_at(const std::shared_ptr<const Buffer<int32_t>>& order, int64_t position) {
  return order ? (*order)[position] : static_cast<int32_t>(position);
}

// Calls visit(k, in position, out position) for every edge whose out position is in tile t, k
// ascending.
template <typename F>
void visit_tile(const RelationLists& lists, const TileBounds& tiles, int64_t t, const F& visit) {
  const int64_t n_k = lists.n_k();
  for (int64_t k = 0; k < n_k; ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    const int32_t* in = list.in;
    const int32_t* out = list.out;
    const int64_t begin = tiles.bounds[t * n_k + k];
    const int64_t end = tiles.bounds[(t + 1) * n_k + k];
    if (in) {
      for (int64_t e = begin; e < end; ++e) visit(k, in[e], out[e]);
    } else {
      for (int64_t e = begin; e < end; ++e)
        visit(k, static_cast<int32_t>(e), static_cast<int32_t>(e));
    }
  }
}

// Copies n values, four at a time: up to three values after the last are overwritten.
void copy_run(const int32_t* from, int64_t n, int32_t* to) {
  for (int64_t i = 0; i < n; i += kOver) std::memcpy(to + i, from + i, kOver * sizeof(int32_t));
}

// All edges by output position, then offset: those of position p are first[p] .. first[p + 1].
// Input ends are public rows. kOver further entries may be read and written.
struct Runs {
  Buffer<int32_t> first, in, k;
};

Runs collect_runs(const RelationLists& lists) {
  const int64_t n_k = lists.n_k();
  // With at most one edge per (row, offset), n_k slots per row are enough, and nothing has to be
  // counted first.
  const bool slots = lists.out_once && n_k * 16 <= kSlots;
  const int64_t tile = slots ? std::min(kTile, kSlots / n_k) : kTile;
  const TileBounds tiles = tile_bounds(lists, tile);
  Runs runs{Buffer<int32_t>(lists.n_out + 1), Buffer<int32_t>(lists.n_edges + kOver),
            Buffer<int32_t>(lists.n_edges + kOver)};
  const int32_t* in_order = lists.in_rows();
  runs.first[lists.n_out] = static_cast<int32_t>(lists.n_edges);
  parallel_for(tiles.n_tiles, [&](int64_t t) {
    const int64_t begin = t * tile;
    const int64_t count = std::min(lists.n_out, begin + tile) - begin;
    int64_t base = 0, size = 0;
    for (int64_t k = 0; k < n_k; ++k) {
      base += tiles.bounds[t * n_k + k];
      size += tiles.bounds[(t + 1) * n_k + k] - tiles.bounds[t * n_k + k];
    }
    int32_t start[kTile + 1], cursor[kTile] = {};
    if (!slots)
      visit_tile(lists, tiles, t, [&](int64_t, int32_t, int32_t out) { ++cursor[out - begin]; });
    start[0] = 0;
    for (int64_t p = 0; p < count; ++p) {
      start[p + 1] = start[p] + (slots ? static_cast<int32_t>(n_k) : cursor[p]);
      cursor[p] = start[p];
    }
    Buffer<int32_t> in(start[count] + kOver), ks(start[count] + kOver);
    visit_tile(lists, tiles, t, [&](int64_t k, int32_t i, int32_t out) {
      const int32_t e = cursor[out - begin]++;
      in[e] = in_order ? in_order[i] : i;
      ks[e] = static_cast<int32_t>(k);
    });
    // The last run of the tile is copied exactly: what follows belongs to another task.
    for (int64_t p = 0; p < count; ++p) {
      const int64_t n = cursor[p] - start[p];
      runs.first[begin + p] = static_cast<int32_t>(base);
      if (size - n >= kOver) {
        copy_run(in.data() + start[p], n, runs.in.data() + base);
        copy_run(ks.data() + start[p], n, runs.k.data() + base);
      } else {
        std::copy_n(in.data() + start[p], n, runs.in.data() + base);
        std::copy_n(ks.data() + start[p], n, runs.k.data() + base);
      }
      base += n;
      size -= n;
    }
  });
  return runs;
}

}  // namespace

// 1. Edges are collected by output position, tile by tile in the cache. 2. Counts go to public
// rows; their sums are the row offsets. 3. Rows are written one after the other, each from its run.
// Runs are read in public order, which scatters the reads, but they are prefetched. Writing runs to
// scattered rows instead costs more: a write to a line reads it first.
void edge_arrays(const RelationLists& lists, int32_t* row_offsets, int32_t* in_rows,
                 int32_t* out_rows, int32_t* kernel_ids) {
  if (lists.n_edges > std::numeric_limits<int32_t>::max())
    throw std::length_error("a relation with " + std::to_string(lists.n_edges) +
                            " edges has no edge arrays; the limit is 2^31 - 1");
  const Runs runs = collect_runs(lists);
  const int64_t n = lists.n_out;
  Buffer<int32_t> position(n);  // of each public row
  each_piece(n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int32_t row = row_at(lists.out_order, p);
      position[row] = static_cast<int32_t>(p);
      row_offsets[row + 1] = runs.first[p + 1] - runs.first[p];
    }
  });
  row_offsets[0] = 0;
  std::partial_sum(row_offsets, row_offsets + n + 1, row_offsets);
  each_piece(n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (row + kAhead < end) {
        const int32_t next = runs.first[position[row + kAhead]];
        for (const int32_t* array : {runs.in.data(), runs.k.data()}) {
          __builtin_prefetch(array + next);
          __builtin_prefetch(array + next + 16);
        }
      }
      const int32_t from = runs.first[position[row]], to = row_offsets[row],
                    count = row_offsets[row + 1] - to;
      if (row_offsets[end] - row_offsets[row + 1] >= kOver) {
        copy_run(runs.in.data() + from, count, in_rows + to);
        copy_run(runs.k.data() + from, count, kernel_ids + to);
        for (int32_t e = to; e < to + count; e += kOver)
          std::fill_n(out_rows + e, kOver, static_cast<int32_t>(row));
      } else {
        std::copy_n(runs.in.data() + from, count, in_rows + to);
        std::copy_n(runs.k.data() + from, count, kernel_ids + to);
        std::fill_n(out_rows + to, count, static_cast<int32_t>(row));
      }
    }
  });
}

void group_edges(const int32_t* keys, int64_t n_edges, int64_t n_groups, int32_t* offsets,
                 int32_t* edge_ids) {
  std::fill(offsets, offsets + n_groups + 1, 0);
  for (int64_t e = 0; e < n_edges; ++e) ++offsets[keys[e] + 1];
  std::partial_sum(offsets, offsets + n_groups + 1, offsets);
  Buffer<int32_t> cursor(n_groups);
  std::copy(offsets, offsets + n_groups, cursor.begin());
  for (int64_t e = 0; e < n_edges; ++e) edge_ids[cursor[keys[e]]++] = static_cast<int32_t>(e);
}

bool implicit_map(const RelationLists& lists, int32_t* out_in_map, uint32_t* masks) {
  const int64_t n_k = lists.n_k();
  const int64_t words = (n_k + 31) / 32;
  const TileBounds tiles = tile_bounds(lists, kTile);
  std::fill(out_in_map, out_in_map + lists.n_out * n_k, -1);
  std::fill(masks, masks + lists.n_out * words, 0u);
  std::vector<uint8_t> repeated(static_cast<size_t>(tiles.n_tiles), 0);
  parallel_for(tiles.n_tiles, [&](int64_t t) {
    visit_tile(lists, tiles, t, [&](int64_t k, int32_t in, int32_t out) {
      const int64_t o = row_at(lists.out_order, out);
      int32_t& slot = out_in_map[o * n_k + k];
      if (slot >= 0) repeated[static_cast<size_t>(t)] = 1;
      slot = row_at(lists.in_order, in);
      masks[o * words + k / 32] |= uint32_t{1} << (k % 32);
    });
  });
  return std::find(repeated.begin(), repeated.end(), 1) == repeated.end();
}

void tile_lists(const RelationLists& lists, TileBounds& tiles, int32_t* in_rows, int32_t* positions,
                int32_t* order) {
  for (int64_t p = 0; p < lists.n_out; ++p) order[p] = row_at(lists.out_order, p);
  const int64_t n_k = lists.n_k();
  int64_t first = 0;  // edge of list k
  for (int64_t k = 0; k < n_k; ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int64_t e = 0; e < list.size; ++e) {
      in_rows[first + e] = row_at(lists.in_order, list.in_at(e));
      positions[first + e] = list.out_at(e);
    }
    for (int64_t t = 0; t <= tiles.n_tiles; ++t)
      tiles.bounds[t * n_k + k] += static_cast<int32_t>(first);
    first += list.size;
  }
}

void offset_edges(const RelationLists& lists, int32_t* row_offsets, int32_t* in_rows,
                  int32_t* out_rows) {
  const int64_t n_k = lists.n_k();
  row_offsets[0] = 0;
  for (int64_t k = 0; k < n_k; ++k)
    row_offsets[k + 1] =
        row_offsets[k] + static_cast<int32_t>(lists.lists[static_cast<size_t>(k)].size);
  parallel_for(n_k, [&](int64_t k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    const int32_t first = row_offsets[k];
    for (int64_t e = 0; e < list.size; ++e) {
      in_rows[first + e] = row_at(lists.in_order, list.in_at(e));
      out_rows[first + e] = row_at(lists.out_order, list.out_at(e));
    }
  });
}

bool has_one_edge_per_output(const RelationLists& lists) {
  if (lists.n_edges != lists.n_out) return false;
  std::vector<bool> seen(static_cast<size_t>(lists.n_out));
  for (const OffsetList& list : lists.lists)
    for (int64_t e = 0; e < list.size; ++e) {
      const auto row = static_cast<size_t>(list.out_at(e));
      if (seen[row]) return false;
      seen[row] = true;
    }
  return true;
}

RelationLists lists_of_edges(const int32_t* in_rows, const int32_t* out_rows,
                             const int32_t* kernel_ids, int64_t n_edges, int64_t n_in,
                             int64_t n_out, int64_t n_k) {
  Buffer<int32_t> by_out(n_edges), out_offsets(n_out + 1), k_offsets(n_k + 1), k_of(n_edges),
      by_k(n_edges);
  group_edges(out_rows, n_edges, n_out, out_offsets.data(), by_out.data());
  for (int64_t e = 0; e < n_edges; ++e) k_of[e] = kernel_ids[by_out[e]];
  group_edges(k_of.data(), n_edges, n_k, k_offsets.data(), by_k.data());
  auto in = std::make_shared<Buffer<int32_t>>(n_edges);
  auto out = std::make_shared<Buffer<int32_t>>(n_edges);
  for (int64_t e = 0; e < n_edges; ++e) {
    (*in)[e] = in_rows[by_out[by_k[e]]];
    (*out)[e] = out_rows[by_out[by_k[e]]];
  }
  RelationLists lists;
  lists.n_in = n_in;
  lists.n_out = n_out;
  lists.n_edges = n_edges;
  for (int64_t k = 0; k < n_k; ++k) {
    const int64_t from = k_offsets[k], to = k_offsets[k + 1];
    lists.lists.push_back({in->data() + from, out->data() + from, to - from});
    lists.monotone = lists.monotone && std::is_sorted(in->data() + from, in->data() + to);
  }
  lists.in_once = false;  // nobody looked
  lists.count_buckets();
  lists.storage = {std::move(in), std::move(out)};
  return lists;
}

Coverage coverage(const RelationLists& lists) {
  Buffer<uint8_t> in(lists.n_in), out(lists.n_out);
  std::fill(in.begin(), in.end(), uint8_t{0});
  std::fill(out.begin(), out.end(), uint8_t{0});
  for (const OffsetList& list : lists.lists)
    for (int64_t e = 0; e < list.size; ++e) in[list.in_at(e)] = 1, out[list.out_at(e)] = 1;
  return {std::count(in.begin(), in.end(), 0), std::count(out.begin(), out.end(), 0)};
}

}  // namespace lattice::cpu
