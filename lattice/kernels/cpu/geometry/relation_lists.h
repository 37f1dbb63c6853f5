// The edges of a relation in the form that kernels read.
//
// Rows of each end have a spatially local order: position p of the output end is public row
// out_order[p]. For each kernel offset k, lists[k] holds the edges (in position, out position) of
// that offset, ascending in the out position. On a lattice every list ascends in the in position
// too (`monotone`), because one offset is a translation.
//
// Mirrored offsets of a submanifold relation share memory: list K-1-k is list k with its ends
// swapped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// Edges of one offset. in == nullptr: edge e is (e, e), which only happens with both pointers null.
struct OffsetList {
  const int32_t* in = nullptr;
  const int32_t* out = nullptr;
  int64_t size = 0;
  int32_t in_at(int64_t e) const { return in ? in[e] : static_cast<int32_t>(e); }
  int32_t out_at(int64_t e) const { return out ? out[e] : static_cast<int32_t>(e); }
};

struct RelationLists {
  int64_t n_in = 0;
  int64_t n_out = 0;
  int64_t n_edges = 0;
  bool monotone = true;   // each list ascends at its in end too
  bool in_once = true;    // false: two edges of a list may share an input
  bool out_once = true;   // false: two edges of a list may share an output
  int64_t n_buckets = 0;  // distinct (list, output); 0 if they were not counted
  std::shared_ptr<const Buffer<int32_t>> in_order;  // position -> row; null: identity
  std::shared_ptr<const Buffer<int32_t>> out_order;
  std::vector<OffsetList> lists;                                // n_k of them
  std::vector<std::shared_ptr<const Buffer<int32_t>>> storage;  // what the lists point into

  int64_t n_k() const { return static_cast<int64_t>(lists.size()); }
  // Rows by position; null: the row is the position.
  const int32_t* in_rows() const { return in_order ? in_order->data() : nullptr; }
  const int32_t* out_rows() const { return out_order ? out_order->data() : nullptr; }
  size_t nbytes() const;
  // Sets n_buckets and out_once.
  void count_buckets();
};

// Ends swapped. Arrays are shared when `monotone`; otherwise each list is sorted by its new out end
// (stable).
RelationLists reversed(const RelationLists& lists);

// Rows are processed in tiles of `tile` out positions. bounds[t * n_k + k] is the first edge of
// list k whose out position is >= t * tile. There are n_tiles + 1 rows of bounds.
struct TileBounds {
  int64_t tile = 0;
  int64_t n_tiles = 0;
  Buffer<int32_t> bounds;
};
TileBounds tile_bounds(const RelationLists& lists, int64_t tile);

}  // namespace lattice::cpu
