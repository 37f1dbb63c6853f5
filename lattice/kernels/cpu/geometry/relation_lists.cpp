// Derived forms of RelationLists: size in memory, ends swapped, first edges of each tile.
#include "lattice/kernels/cpu/geometry/relation_lists.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

using Shared = std::shared_ptr<const Buffer<int32_t>>;

// Edges (in, out) of a list, sorted by in and then by their old order, as a list (out, in). Lists
// ascend in out, so the order of the pairs as numbers is that order.
OffsetList sorted_by_in(const OffsetList& list, Shared* storage) {
  Buffer<uint64_t> pairs(list.size);
  for (int64_t e = 0; e < list.size; ++e) {
    pairs[e] = static_cast<uint64_t>(static_cast<uint32_t>(list.in_at(e))) << 32 |
               static_cast<uint32_t>(list.out_at(e));
  }
  std::sort(pairs.begin(), pairs.end());
  auto ends = std::make_shared<Buffer<int32_t>>(2 * list.size);
  int32_t* in = ends->data();
  int32_t* out = in + list.size;
  for (int64_t e = 0; e < list.size; ++e) {
    in[e] = static_cast<int32_t>(pairs[e] & 0xffffffffu);
    out[e] = static_cast<int32_t>(pairs[e] >> 32);
  }
  *storage = std::move(ends);
  return {in, out, list.size};
}

}  // namespace

size_t RelationLists::nbytes() const {
  std::vector<const Buffer<int32_t>*> seen;
  auto add = [&](const Shared& buffer) {
    if (buffer) seen.push_back(buffer.get());
  };
  add(in_order);
  add(out_order);
  for (const Shared& buffer : storage) add(buffer);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  size_t bytes =
      sizeof(*this) + lists.size() * sizeof(OffsetList) + storage.size() * sizeof(Shared);
  for (const Buffer<int32_t>* buffer : seen) bytes += buffer->nbytes();
  return bytes;
}

void RelationLists::count_buckets() {
  n_buckets = 0;
  for (const OffsetList& list : lists) {
    if (!list.out) {
      n_buckets += list.size;
      continue;
    }
    for (int64_t e = 0; e < list.size; ++e) n_buckets += e == 0 || list.out[e] != list.out[e - 1];
  }
  out_once = n_buckets == n_edges;
}

RelationLists reversed(const RelationLists& lists) {
  RelationLists r;
  r.n_in = lists.n_out;
  r.n_out = lists.n_in;
  r.n_edges = lists.n_edges;
  r.monotone = lists.monotone;
  r.in_once = lists.out_once;
  r.out_once = lists.in_once;
  r.in_order = lists.out_order;
  r.out_order = lists.in_order;
  r.lists.resize(lists.lists.size());
  if (lists.monotone) {
    for (size_t k = 0; k < r.lists.size(); ++k)
      r.lists[k] = {lists.lists[k].out, lists.lists[k].in, lists.lists[k].size};
    r.storage = lists.storage;
    if (!r.out_once) r.count_buckets();
    return r;
  }
  r.storage.resize(r.lists.size());
  parallel_for(lists.n_k(), [&](int64_t k) {
    const OffsetList& list = lists.lists[k];
    if (list.in) {
      r.lists[k] = sorted_by_in(list, &r.storage[k]);
    } else {
      r.lists[k] = list;
    }
  });
  r.monotone = std::all_of(r.lists.begin(), r.lists.end(), [](const OffsetList& list) {
    return !list.in || std::is_sorted(list.in, list.in + list.size);
  });
  if (!r.out_once) r.count_buckets();
  return r;
}

TileBounds tile_bounds(const RelationLists& lists, int64_t tile) {
  if (tile < 1)
    throw std::invalid_argument("[tile_bounds] tile must be positive: found " +
                                std::to_string(tile));
  const int64_t n_k = lists.n_k();
  TileBounds b;
  b.tile = tile;
  b.n_tiles = (lists.n_out + tile - 1) / tile;
  b.bounds = Buffer<int32_t>((b.n_tiles + 1) * n_k);
  // A walk over the list costs less than a search per tile while a tile has fewer than about 16
  // edges of the offset.
  parallel_for(n_k, [&](int64_t k) {
    const OffsetList& list = lists.lists[k];
    const bool walk = list.size < 16 * b.n_tiles;
    int64_t e = 0;
    for (int64_t t = 0; t <= b.n_tiles; ++t) {
      const int64_t first = t * tile;
      if (t == b.n_tiles) {
        e = list.size;
      } else if (!list.out) {
        e = std::min(first, list.size);
      } else if (walk) {
        while (e < list.size && list.out[e] < first) ++e;
      } else {
        int64_t step = 1;  // gallop from the last bound
        while (e + step < list.size && list.out[e + step] < first) step *= 2;
        const int32_t* end = list.out + std::min(e + step, list.size);
        e = std::lower_bound(list.out + e, end, first) - list.out;
      }
      b.bounds[t * n_k + k] = static_cast<int32_t>(e);
    }
  });
  return b;
}

}  // namespace lattice::cpu
