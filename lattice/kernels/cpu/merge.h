// The walk of two sorted key sequences that finds all edges of a relation; see relations.h for the idea.
#pragma once

#include <cstring>
#include <vector>

#include "lattice/kernels/cpu/keys.h"
#include "lattice/kernels/cpu/lists.h"

namespace lattice::cpu {

// Offsets that differ in z only: ids first_k + d stand for a move by `step` and d * z_step in z, d in [0, count).
template <typename Key>
struct OffsetGroup {
  Key step;
  Key last_step;  // the move of d = count - 1
  int64_t first_k;
  int64_t count;
  uint64_t z_step;
};

// An edge as a walk finds it: position in the keys, position in the anchors. One 8-byte store.
struct Match {
  int32_t key;
  int32_t anchor;
};

// Any spacing, any number of z offsets, repeated keys. List d of the group is out[d * stride ...], sizes[d] entries.
template <typename Space>
void walk_any(const typename Space::Key* keys, int64_t n, const typename Space::Key* anchors, int64_t begin, int64_t end,
              const OffsetGroup<typename Space::Key>& group, Match* out, int64_t stride, int64_t* sizes) {
  const uint64_t window = static_cast<uint64_t>(group.count - 1) * group.z_step;
  int64_t j = std::lower_bound(keys, keys + n, Space::add(anchors[begin], group.step)) - keys;
  std::fill(sizes, sizes + group.count, 0);
  for (int64_t i = begin; i < end; ++i) {
    const auto from = Space::add(anchors[i], group.step);
    while (j < n && keys[j] < from) ++j;
    for (int64_t p = j; p < n; ++p) {
      const uint64_t ahead = Space::ahead(from, keys[p]);
      if (ahead > window) break;
      if (ahead % group.z_step) continue;
      const int64_t d = static_cast<int64_t>(ahead / group.z_step);
      out[d * stride + sizes[d]++] = {static_cast<int32_t>(p), static_cast<int32_t>(i)};
    }
  }
}

// kGroups groups of kCount adjacent z offsets at once; keys without repeats. List d of group g is
// out[(g * kCount + d) * stride ...]. Stores are unconditional and the pointer usually moves by at most two without a
// branch, because a mispredicted branch costs more than the work; several groups at once hide the latency of the chain
// pointer -> key -> pointer. Measured on `room`: 30 ns a row with one branching walk per group, 16 with this one.
template <int kGroups, int kCount>
void walk_adjacent(const uint64_t* keys, int64_t n, const uint64_t* anchors, int64_t begin, int64_t end,
                   const OffsetGroup<uint64_t>* groups, Match* out, int64_t stride, int64_t* sizes) {
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

using AdjacentWalk = void (*)(const uint64_t*, int64_t, const uint64_t*, int64_t, int64_t, const OffsetGroup<uint64_t>*,
                              Match*, int64_t, int64_t*);
inline AdjacentWalk adjacent_walk(bool four, int64_t count) {
  static constexpr AdjacentWalk kWalks[2][3] = {{walk_adjacent<1, 1>, walk_adjacent<1, 2>, walk_adjacent<1, 3>},
                                                {walk_adjacent<4, 1>, walk_adjacent<4, 2>, walk_adjacent<4, 3>}};
  return kWalks[four][count - 1];
}

// Keys that a walk from the first to the last anchor can meet. With repeated keys a list may have more entries than anchors,
// but no more than these plus the anchors.
template <typename Space>
int64_t keys_in_reach(const typename Space::Key* keys, int64_t n, const typename Space::Key& first,
                      const typename Space::Key& last, const OffsetGroup<typename Space::Key>& group) {
  const auto* from = std::lower_bound(keys, keys + n, Space::add(first, group.step));
  const auto* to = std::upper_bound(from, keys + n, Space::add(last, group.last_step));
  return to - from;
}

// What the walks of a block of anchors found, compactly: list k begins at start[k], key positions first, then anchors.
struct BlockEdges {
  Buffer<int32_t> data;
  int64_t used = 0;
  std::vector<int64_t> start;
  std::vector<int64_t> size;

  void append(int64_t k, const Match* matches, int64_t n) {
    if (used + 2 * n > data.size()) {
      Buffer<int32_t> larger(std::max(used + 2 * n, data.size() * 2));
      std::copy(data.begin(), data.begin() + used, larger.begin());
      data = std::move(larger);
    }
    int32_t* to = data.data() + used;
    for (int64_t e = 0; e < n; ++e) {
      to[e] = matches[e].key;
      to[n + e] = matches[e].anchor;
    }
    start[static_cast<size_t>(k)] = used;
    size[static_cast<size_t>(k)] = n;
    used += 2 * n;
  }
};

// Edges of all groups: list k of the result holds (key position, anchor position), in its `in` and `out` fields.
// Scratch: twice the edges, and one block of anchors for four groups per thread.
template <typename Space>
RelationLists merge_lists(const typename Space::Key* keys, int64_t n, bool unique, const typename Space::Key* anchors,
                          int64_t n_anchors, const std::vector<OffsetGroup<typename Space::Key>>& groups, int64_t n_k) {
  constexpr int64_t kBlock = 1 << 11;
  const int64_t n_blocks = (n_anchors + kBlock - 1) / kBlock;
  std::vector<BlockEdges> blocks(static_cast<size_t>(n_blocks));
  parallel_for(n_blocks, [&](int64_t b) {
    BlockEdges& block = blocks[static_cast<size_t>(b)];
    block.start.assign(static_cast<size_t>(n_k), 0);
    block.size.assign(static_cast<size_t>(n_k), 0);
    const int64_t begin = b * kBlock;
    const int64_t end = std::min(n_anchors, begin + kBlock);
    block.data = Buffer<int32_t>(24 * (end - begin));
    Buffer<Match> scratch;
    std::vector<int64_t> sizes;
    for (size_t g = 0; g < groups.size();) {
      const auto& group = groups[g];
      const bool adjacent = std::is_same_v<Space, PackedSpace> && unique && group.z_step == 1 && group.count <= 3;
      const bool four = adjacent && g + 4 <= groups.size() && groups[g + 3].count == group.count;
      const int64_t lists = (four ? 4 : 1) * group.count;
      const int64_t reach = unique ? 0 : keys_in_reach<Space>(keys, n, anchors[begin], anchors[end - 1], group);
      const int64_t stride = end - begin + reach + 1;
      if (scratch.size() < lists * stride) scratch = Buffer<Match>(lists * stride);
      sizes.resize(static_cast<size_t>(lists));
      if constexpr (std::is_same_v<Space, PackedSpace>) {
        if (adjacent)
          adjacent_walk(four, group.count)(keys, n, anchors, begin, end, &group, scratch.data(), stride, sizes.data());
      }
      if (!adjacent) walk_any<Space>(keys, n, anchors, begin, end, group, scratch.data(), stride, sizes.data());
      // Groups follow each other without gaps, so that list l of this walk is offset first_k + l.
      for (int64_t l = 0; l < lists; ++l)
        block.append(group.first_k + l, scratch.data() + l * stride, sizes[static_cast<size_t>(l)]);
      g += four ? 4 : 1;
    }
  });

  RelationLists result;
  result.lists.resize(static_cast<size_t>(n_k));
  std::vector<int64_t> at(static_cast<size_t>(n_k), 0);
  int64_t total = 0;
  for (size_t k = 0; k < static_cast<size_t>(n_k); ++k) {
    at[k] = total;
    for (const BlockEdges& block : blocks) result.lists[k].size += block.size[k];
    total += result.lists[k].size;
  }
  auto storage = std::make_shared<Buffer<int32_t>>(2 * total);
  int32_t* key_side = storage->data();
  int32_t* anchor_side = storage->data() + total;
  for (size_t k = 0; k < static_cast<size_t>(n_k); ++k) {
    result.lists[k].in = key_side + at[k];
    result.lists[k].out = anchor_side + at[k];
  }
  std::vector<std::vector<int64_t>> from(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    from[b] = at;
    for (size_t k = 0; k < at.size(); ++k) at[k] += blocks[b].size[k];
  }
  parallel_for(n_blocks, [&](int64_t b) {
    const BlockEdges& block = blocks[static_cast<size_t>(b)];
    for (size_t k = 0; k < static_cast<size_t>(n_k); ++k) {
      const int32_t* source = block.data.data() + block.start[k];
      const int64_t to = from[static_cast<size_t>(b)][k];
      std::copy(source, source + block.size[k], key_side + to);
      std::copy(source + block.size[k], source + 2 * block.size[k], anchor_side + to);
    }
  });
  result.n_edges = total;
  result.storage.push_back(std::move(storage));
  return result;
}

}  // namespace lattice::cpu
