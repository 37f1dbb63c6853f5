// Functions that the builders of relations share (relations.cpp, reached.cpp): anchors, groups of
// offsets, the space of keys of a walk, and distinct keys as rows.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/geometry/merge.h"
#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice::cpu {

inline constexpr int64_t kGrain = 1 << 14;

inline Triple first_offset(const Kernel& k) { return {k.first(0), k.first(1), k.first(2)}; }
inline Triple last_offset(const Kernel& k) { return {k.last(0), k.last(1), k.last(2)}; }
inline Triple negated(const Triple& t) { return {-t[0], -t[1], -t[2]}; }

// c * stride - padding as a key. Modulo 2^64 is enough for packed keys: the result lies in the
// space.
inline PackedSpace::Key anchor_key(const PackedSpace& space, const std::array<int64_t, 4>& c,
                                   const Kernel& kernel) {
  const auto move = [&](size_t a) {
    return static_cast<int64_t>(static_cast<uint64_t>(c[a + 1]) *
                                    static_cast<uint64_t>(kernel.stride[a]) -
                                static_cast<uint64_t>(kernel.padding[a]));
  };
  return space.make(c[0], move(0), move(1), move(2));
}

inline WideSpace::Key anchor_key(const WideSpace&, const std::array<int64_t, 4>& c,
                                 const Kernel& kernel) {
  const auto move = [&](size_t a) {
    return int128{c[a + 1]} * kernel.stride[a] - kernel.padding[a];
  };
  return {{c[0], move(0), move(1), move(2)}};
}

inline Box anchor_box(const Box& box, const Kernel& kernel) {
  return box.scaled(kernel.stride).reach(negated(kernel.padding), negated(kernel.padding));
}

// Anchors of all rows at their sorted positions, from keys of another space.
template <typename Space, typename From>
Buffer<typename Space::Key> make_anchors(const Space& space, const From& from,
                                         const typename From::Key* keys, int64_t n,
                                         const Kernel& kernel) {
  Buffer<typename Space::Key> anchors(n);
  parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      anchors[p] = anchor_key(space,
                              {from.axis(keys[p], 0), from.axis(keys[p], 1), from.axis(keys[p], 2),
                               from.axis(keys[p], 3)},
                              kernel);
  });
  return anchors;
}

template <typename Space>
Buffer<typename Space::Key> make_anchors(const Space& space, const CoordIndex& index,
                                         const Kernel& kernel) {
  return std::visit(
      [&](const auto& s) { return make_anchors(space, s.space, s.keys.data(), s.n, kernel); },
      index.sorted);
}

// Offsets in groups of z neighbors, in the order of their ids; with `half` only the offsets after
// the center.
template <typename Space>
std::vector<OffsetGroup<typename Space::Key>> offset_groups(const Space& space,
                                                            const Kernel& kernel, bool half) {
  std::vector<OffsetGroup<typename Space::Key>> groups;
  const int64_t volume = kernel.volume();
  const int64_t longest = kernel.dilation[2] == 1 ? kMaxGroup : 1;
  for (int64_t k = half ? volume / 2 + 1 : 0; k < volume;) {
    const int64_t count = std::min(longest, kernel.size[2] - k % kernel.size[2]);
    const Triple from = kernel.offset(k);
    const Triple to = kernel.offset(k + count - 1);
    groups.push_back(
        {space.step(from[0], from[1], from[2]), space.step(to[0], to[1], to[2]), k, count});
    k += count;
  }
  return groups;
}

// Calls run(space) with the packed space of the box, or the wide one.
template <typename F>
auto with_space(const Box& box, const F& run) {
  if (const auto space = PackedSpace::plan(box)) return run(*space);
  return run(WideSpace::plan(box));
}

// Keys of the index for a walk over `needed`: its own when its space holds that box, else new ones.
template <typename F>
auto with_keys(const CoordIndex& index, const Box& needed, const F& run) {
  if (const auto* s = std::get_if<Sorted<PackedSpace>>(&index.sorted);
      s && s->space.box.holds(needed))
    return run(s->space, s->keys.data());
  return with_space(index.box.joined(needed), [&](const auto& space) {
    const auto keys = rekey(index, space);
    return run(space, keys.data());
  });
}

inline std::shared_ptr<const Buffer<int32_t>> order_of(
    const std::shared_ptr<const CoordIndex>& index) {
  return {index, &index->order()};
}

inline void swap_ends(RelationLists& lists) {
  for (OffsetList& list : lists.lists) std::swap(list.in, list.out);
}

inline void set_ends(RelationLists& lists, const std::shared_ptr<const CoordIndex>& in,
                     const std::shared_ptr<const CoordIndex>& target) {
  lists.n_in = in->rows();
  lists.n_out = target->rows();
  lists.in_order = order_of(in);
  lists.out_order = order_of(target);
  lists.in_once = target->duplicate < 0;
}

// Keys made from candidates, each once, ascending; order[p] is the public row of position p, first
// seen first.
template <typename Space>
struct DistinctKeys {
  Buffer<typename Space::Key> keys;
  std::shared_ptr<Buffer<int32_t>> order;
  int64_t n = 0;
};

template <typename Space, typename KeyOf>
DistinctKeys<Space> distinct_keys(const Space& space, int64_t n, const KeyOf& key_of) {
  Buffer<typename Space::Key> keys(n + kPad);
  Buffer<int32_t> order(n);
  if constexpr (std::is_same_v<Space, PackedSpace>) {
    sort_keys(n, space.bits, key_of, keys, order);
  } else {
    for (int64_t c = 0; c < n; ++c) order[c] = static_cast<int32_t>(c);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key_of(a) < key_of(b); });
    for (int64_t p = 0; p < n; ++p) keys[p] = key_of(order[p]);
  }
  // Heads of runs of equal keys: the first candidates, because the sort is stable.
  const auto is_head = [&](int64_t p) { return p == 0 || !(keys[p] == keys[p - 1]); };
  Buffer<uint8_t> is_first(n);
  std::vector<int64_t> heads(static_cast<size_t>(piece_count(n)));
  each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) heads[piece] += is_first[order[p]] = is_head(p);
  });
  const int64_t count = exclusive_sum(heads);
  const Buffer<int32_t> first = rows_that(n, [&](int64_t c) { return is_first[c] != 0; });
  Buffer<int32_t> rank(n);
  each_piece(count, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t d = begin; d < end; ++d) rank[first[d]] = static_cast<int32_t>(d);
  });
  DistinctKeys<Space> out{Buffer<typename Space::Key>(count + kPad),
                          std::make_shared<Buffer<int32_t>>(count), count};
  each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    int64_t at = heads[piece];
    for (int64_t p = begin; p < end; ++p) {
      if (!is_head(p)) continue;
      out.keys[at] = keys[p];
      (*out.order)[at++] = rank[order[p]];
    }
  });
  std::fill(out.keys.begin() + count, out.keys.end(), Space::last());
  return out;
}

template <typename Space>
MadeCoords decode(const Space& space, const DistinctKeys<Space>& distinct, bool is64) {
  MadeCoords made;
  made.rows = distinct.n;
  made.data = Buffer<std::byte>(distinct.n * 4 * (is64 ? 8 : 4));
  const auto write = [&]<typename T>(T* to) {
    parallel_range(distinct.n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        for (int a = 0; a < 4; ++a)
          to[int64_t{(*distinct.order)[p]} * 4 + a] =
              static_cast<T>(space.axis(distinct.keys[p], a));
    });
  };
  if (is64)
    write(reinterpret_cast<int64_t*>(made.data.data()));
  else
    write(reinterpret_cast<int32_t*>(made.data.data()));
  return made;
}

}  // namespace lattice::cpu
