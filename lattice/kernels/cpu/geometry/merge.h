// The walk of two sorted key sequences that finds all edges of a relation; see relations.h for the
// idea.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// Offsets that are neighbors in z: ids first_k + d stand for a move by `step` and by d in z, d in
// [0, count). Offsets further apart (dilation) have a group each: a common walk would pass over
// every key between them.
template <typename Key>
struct OffsetGroup {
  Key step;
  Key last_step;  // the move of d = count - 1
  int64_t first_k;
  int64_t count;
};
inline constexpr int64_t kMaxGroup = 16;

// An edge as a walk finds it: position in the keys, position in the anchors. One 8-byte store.
struct Match {
  int32_t key;
  int32_t anchor;
};

// What a walk reads: n sorted keys, and the sorted anchors [begin, end).
template <typename Key>
struct Walk {
  const Key* keys;
  int64_t n;
  const Key* anchors;
  int64_t begin, end;
};

// What a walk writes: list l is out[l * stride ...], sizes[l] entries.
struct WalkLists {
  Match* out;
  int64_t stride;
  int64_t* sizes;
};

// Any number of z offsets, repeated keys; one list per offset.
template <typename Space>
void walk_any(const Walk<typename Space::Key>& walk, const OffsetGroup<typename Space::Key>& group,
              const WalkLists& lists) {
  const auto [keys, n, anchors, begin, end] = walk;
  const auto [out, stride, sizes] = lists;
  const uint64_t window = static_cast<uint64_t>(group.count - 1);
  int64_t j = std::lower_bound(keys, keys + n, Space::add(anchors[begin], group.step)) - keys;
  std::fill(sizes, sizes + group.count, 0);
  for (int64_t i = begin; i < end; ++i) {
    const auto from = Space::add(anchors[i], group.step);
    while (j < n && keys[j] < from) ++j;
    for (int64_t p = j; p < n; ++p) {
      const uint64_t ahead = Space::ahead(from, keys[p]);
      if (ahead > window) break;
      const int64_t d = static_cast<int64_t>(ahead);
      out[d * stride + sizes[d]++] = {static_cast<int32_t>(p), static_cast<int32_t>(i)};
    }
  }
}

// kGroups groups of kCount adjacent z offsets at once; keys without repeats. Offset d of group g
// has list g * kCount + d. Stores are unconditional, and the pointer usually moves by at
// most two without a branch, because a mispredicted branch costs more than the work. Several groups
// at once hide the latency of the chain pointer -> key -> pointer. Measured on `room`: 30 ns per
// row with one branching walk per group, 16 ns per row with this walk.
template <int kGroups, int kCount>
void walk_adjacent(const Walk<uint64_t>& walk, const OffsetGroup<uint64_t>* groups,
                   const WalkLists& lists) {
  const auto [keys, n, anchors, begin, end] = walk;
  const auto [out, stride, sizes] = lists;
  int64_t at[kGroups];
  uint64_t step[kGroups];
  Match* cursor[kGroups * kCount];
  for (int g = 0; g < kGroups; ++g) {
    step[g] = groups[g].step;
    at[g] = std::lower_bound(keys, keys + n, anchors[begin] + step[g]) - keys;
    for (int d = 0; d < kCount; ++d) cursor[g * kCount + d] = out + (g * kCount + d) * stride;
  }
  for (int64_t i = begin; i < end; ++i) {
    for (int g = 0; g < kGroups; ++g) {
      const uint64_t from = anchors[i] + step[g];
      int64_t j = at[g];
      j += keys[j] < from;  // stops at the padding
      j += keys[j] < from;
      while (keys[j] < from) ++j;
      at[g] = j;
      for (int d = 0; d < kCount; ++d) {
        Match*& to = cursor[g * kCount + d];
        *to = {static_cast<int32_t>(j), static_cast<int32_t>(i)};
        const int64_t hit = keys[j] == from + static_cast<uint64_t>(d);
        to += hit;
        j += hit;
      }
    }
  }
  for (int l = 0; l < kGroups * kCount; ++l) sizes[l] = cursor[l] - (out + l * stride);
}

using AdjacentWalk = void (*)(const Walk<uint64_t>&, const OffsetGroup<uint64_t>*,
                              const WalkLists&);
inline AdjacentWalk adjacent_walk(bool four, int64_t count) {
  static constexpr AdjacentWalk kWalks[2][3] = {
      {walk_adjacent<1, 1>, walk_adjacent<1, 2>, walk_adjacent<1, 3>},
      {walk_adjacent<4, 1>, walk_adjacent<4, 2>, walk_adjacent<4, 3>}};
  return kWalks[four][count - 1];
}

// Keys that a walk from the first to the last anchor can meet. With repeated keys a list may have
// more entries than anchors, but no more than these plus the anchors.
template <typename Space>
int64_t keys_in_reach(const typename Space::Key* keys, int64_t n, const typename Space::Key& first,
                      const typename Space::Key& last,
                      const OffsetGroup<typename Space::Key>& group) {
  const auto* from = std::lower_bound(keys, keys + n, Space::add(first, group.step));
  const auto* to = std::upper_bound(from, keys + n, Space::add(last, group.last_step));
  return to - from;
}

// Room for what the walks of a block of anchors find: list l is data[start[l]] and the size[l]
// entries from there.
struct BlockEdges {
  Match* data = nullptr;
  int64_t room = 0;             // entries of all lists together
  std::vector<int64_t> stride;  // room for one list of each group
  std::vector<int64_t> start;
  std::vector<int64_t> size;
};

// Number of groups from g on, one or four, that one walk serves; four need equal counts.
template <typename Key>
size_t walk_width(std::span<const OffsetGroup<Key>> groups, size_t g) {
  if (g + 4 > groups.size()) return 1;
  for (size_t i = 1; i < 4; ++i)
    if (groups[g + i].count != groups[g].count) return 1;
  return 4;
}

template <typename Space>
BlockEdges plan_block(const typename Space::Key* keys, int64_t n, bool unique,
                      const typename Space::Key* anchors, int64_t begin, int64_t end,
                      std::span<const OffsetGroup<typename Space::Key>> groups) {
  BlockEdges block;
  for (const auto& group : groups) {
    const int64_t reach =
        unique ? 0 : keys_in_reach<Space>(keys, n, anchors[begin], anchors[end - 1], group);
    block.stride.push_back(end - begin + reach + 1);
    for (int64_t d = 0; d < group.count; ++d, block.room += block.stride.back())
      block.start.push_back(block.room);
  }
  block.size.resize(block.start.size());
  return block;
}

template <typename Space>
void walk_block(const typename Space::Key* keys, int64_t n, bool unique,
                const typename Space::Key* anchors, int64_t begin, int64_t end,
                std::span<const OffsetGroup<typename Space::Key>> groups, BlockEdges& block) {
  const Walk<typename Space::Key> walk{keys, n, anchors, begin, end};
  size_t list = 0;
  for (size_t g = 0; g < groups.size();) {
    const auto& group = groups[g];
    const WalkLists lists{block.data + block.start[list], block.stride[g],
                          block.size.data() + list};
    size_t width = 1;
    const bool adjacent = std::is_same_v<Space, PackedSpace> && unique && group.count <= 3;
    if constexpr (std::is_same_v<Space, PackedSpace>) {
      if (adjacent) {
        width = walk_width(groups, g);
        adjacent_walk(width == 4, group.count)(walk, &group, lists);
      }
    }
    if (!adjacent) walk_any<Space>(walk, group, lists);
    list += width * static_cast<size_t>(group.count);
    g += width;
  }
}

// The lists of some groups, in blocks of anchors: walk all blocks, add up their sizes, copy to the
// final place.
template <typename Space>
void merge_batch(const typename Space::Key* keys, int64_t n, bool unique,
                 const typename Space::Key* anchors, int64_t n_anchors,
                 std::span<const OffsetGroup<typename Space::Key>> groups, RelationLists& result) {
  constexpr int64_t kBlock = 1 << 11;
  const int64_t n_blocks = (n_anchors + kBlock - 1) / kBlock;
  std::vector<BlockEdges> blocks(static_cast<size_t>(n_blocks));
  const auto last = [&](int64_t b) { return std::min(n_anchors, (b + 1) * kBlock); };
  parallel_for(n_blocks, [&](int64_t b) {
    blocks[static_cast<size_t>(b)] =
        plan_block<Space>(keys, n, unique, anchors, b * kBlock, last(b), groups);
  });
  // One piece of memory for all blocks: huge pages make the first use several times cheaper than
  // many small pieces.
  int64_t room = 0;
  for (const BlockEdges& block : blocks) room += block.room;
  Buffer<Match> scratch(room);
  Match* next = scratch.data();
  for (BlockEdges& block : blocks) block.data = std::exchange(next, next + block.room);
  parallel_for(n_blocks, [&](int64_t b) {
    walk_block<Space>(keys, n, unique, anchors, b * kBlock, last(b), groups,
                      blocks[static_cast<size_t>(b)]);
  });

  // Groups follow each other without gaps, so list l of the batch is offset first_k + l.
  const size_t n_lists =
      static_cast<size_t>(groups.back().first_k + groups.back().count - groups.front().first_k);
  OffsetList* lists = result.lists.data() + groups.front().first_k;
  std::vector<int64_t> place(blocks.size() * n_lists);
  int64_t total = 0;
  for (size_t l = 0; l < n_lists; ++l) {
    const int64_t first = total;
    for (size_t b = 0; b < blocks.size(); ++b) {
      place[b * n_lists + l] = total;
      total += blocks[b].size[l];
    }
    lists[l].size = total - first;
  }
  auto storage = std::make_shared<Buffer<int32_t>>(2 * total);
  int32_t* key_side = storage->data();
  int32_t* anchor_side = storage->data() + total;
  int64_t first = 0;
  for (size_t l = 0; l < n_lists; first += lists[l++].size) {
    lists[l].in = key_side + first;
    lists[l].out = anchor_side + first;
  }
  parallel_for(n_blocks, [&](int64_t b) {
    const BlockEdges& block = blocks[static_cast<size_t>(b)];
    for (size_t l = 0; l < n_lists; ++l) {
      const Match* from = block.data + block.start[l];
      int32_t* to_key = key_side + place[static_cast<size_t>(b) * n_lists + l];
      int32_t* to_anchor = anchor_side + place[static_cast<size_t>(b) * n_lists + l];
      for (int64_t e = 0; e < block.size[l]; ++e) {
        to_key[e] = from[e].key;
        to_anchor[e] = from[e].anchor;
      }
    }
  });
  result.n_edges += total;
  result.storage.push_back(std::move(storage));
}

// Edges of all groups: list k of the result holds (key position, anchor position), in its `in` and
// `out` fields. Groups are taken in batches of about kBatch lists, so scratch is at most 8 *
// kBatch bytes per anchor however large the kernel.
template <typename Space>
RelationLists merge_lists(const typename Space::Key* keys, int64_t n, bool unique,
                          const typename Space::Key* anchors, int64_t n_anchors,
                          const std::vector<OffsetGroup<typename Space::Key>>& groups,
                          int64_t n_k) {
  constexpr int64_t kBatch = 16;
  RelationLists result;
  result.lists.resize(static_cast<size_t>(n_k));
  for (size_t g = 0; g < groups.size();) {
    const size_t first = g;
    for (int64_t n_lists = 0;
         g < groups.size() && (g == first || n_lists + groups[g].count <= kBatch); ++g)
      n_lists += groups[g].count;
    merge_batch<Space>(keys, n, unique, anchors, n_anchors,
                       std::span(groups).subspan(first, g - first), result);
  }
  return result;
}

}  // namespace lattice::cpu
