#include "lattice/kernels/cpu/geometry/relations.h"

#include <limits>
#include <stdexcept>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/geometry/merge.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

Triple first_offset(const Kernel& k) { return {k.first(0), k.first(1), k.first(2)}; }
Triple last_offset(const Kernel& k) { return {k.last(0), k.last(1), k.last(2)}; }
Triple negated(const Triple& t) { return {-t[0], -t[1], -t[2]}; }

// c * stride - padding as a key. Modulo 2^64 is enough for packed keys: the result lies in the
// space.
PackedSpace::Key anchor_key(const PackedSpace& space, const std::array<int64_t, 4>& c,
                            const Kernel& kernel) {
  const auto move = [&](size_t a) {
    return static_cast<int64_t>(static_cast<uint64_t>(c[a + 1]) *
                                    static_cast<uint64_t>(kernel.stride[a]) -
                                static_cast<uint64_t>(kernel.padding[a]));
  };
  return space.make(c[0], move(0), move(1), move(2));
}

WideSpace::Key anchor_key(const WideSpace&, const std::array<int64_t, 4>& c, const Kernel& kernel) {
  const auto move = [&](size_t a) {
    return int128{c[a + 1]} * kernel.stride[a] - kernel.padding[a];
  };
  return {{c[0], move(0), move(1), move(2)}};
}

Box anchor_box(const Box& box, const Kernel& kernel) {
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

std::shared_ptr<const Buffer<int32_t>> order_of(const std::shared_ptr<const CoordIndex>& index) {
  return {index, &index->order()};
}

void swap_ends(RelationLists& lists) {
  for (OffsetList& list : lists.lists) std::swap(list.in, list.out);
}

void set_ends(RelationLists& lists, const std::shared_ptr<const CoordIndex>& in,
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

// Outputs of two inputs never meet: size <= stride and no dilation. Output (i, k) is row i * K + k.
// It has position p * K + k for the input at position p, so that the outputs of one input lie side
// by side. Nothing is searched.
RelationLists generate_apart(const CoordSpan& coords, const std::shared_ptr<const CoordIndex>& in,
                             const Kernel& kernel, MadeCoords* made) {
  const int64_t n = coords.rows, volume = kernel.volume();
  std::vector<Triple> offsets;
  for (int64_t k = 0; k < volume; ++k) offsets.push_back(kernel.offset(k));
  made->rows = n * volume;
  made->data = Buffer<std::byte>(made->rows * 4 * (coords.is64 ? 8 : 4));
  coords.visit([&]<typename T>(const T* from) {
    T* to = reinterpret_cast<T*>(made->data.data());
    parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t k = 0; k < volume; ++k) {
          T* row = to + (i * volume + k) * 4;
          row[0] = from[i * 4];
          // In 128 bits: in * stride alone may leave the range when padding brings it back.
          for (size_t a = 0; a < 3; ++a)
            row[a + 1] = static_cast<T>(int128{from[i * 4 + 1 + static_cast<int64_t>(a)]} *
                                            kernel.stride[a] +
                                        offsets[static_cast<size_t>(k)][a] - kernel.padding[a]);
        }
    });
  });

  RelationLists out;
  out.n_in = n;
  out.n_out = made->rows;
  out.n_edges = made->rows;
  out.in_order = order_of(in);
  auto positions = std::make_shared<Buffer<int32_t>>(n);
  auto ends = std::make_shared<Buffer<int32_t>>(made->rows);  // of list k: ends[k * n ...]
  auto order = std::make_shared<Buffer<int32_t>>(made->rows);
  const int32_t* in_order = out.in_rows();
  parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      (*positions)[p] = static_cast<int32_t>(p);
      for (int64_t k = 0; k < volume; ++k) {
        (*ends)[k * n + p] = static_cast<int32_t>(p * volume + k);
        (*order)[p * volume + k] = static_cast<int32_t>((in_order ? in_order[p] : p) * volume + k);
      }
    }
  });
  out.out_order = order;
  for (int64_t k = 0; k < volume; ++k)
    out.lists.push_back({positions->data(), ends->data() + k * n, n});
  out.storage = {positions, ends};
  return out;
}

}  // namespace

Triple Kernel::offset(int64_t k) const {
  const std::array<int64_t, 3> index = {k / (size[1] * size[2]), k / size[2] % size[1],
                                        k % size[2]};
  return {first(0) + index[0] * dilation[0], first(1) + index[1] * dilation[1],
          first(2) + index[2] * dilation[2]};
}

bool Kernel::symmetric() const {
  for (size_t a = 0; a < 3; ++a)
    if (stride[a] != 1 || padding[a] != 0 || size[a] % 2 == 0) return false;
  return centered;
}

RelationLists relate_same(const std::shared_ptr<const CoordIndex>& in, const Kernel& kernel) {
  if (!kernel.symmetric()) return relate_gather(in, in, kernel);
  const int64_t volume = kernel.volume();
  const Box needed = in->box.reach(first_offset(kernel), last_offset(kernel));
  RelationLists out = with_keys(*in, needed, [&](const auto& space, const auto* keys) {
    using Space = std::remove_cvref_t<decltype(space)>;
    return merge_lists<Space>(keys, in->rows(), true, keys, in->rows(),
                              offset_groups(space, kernel, true), volume);
  });
  out.n_edges *= 2;
  for (int64_t k = 0; k < volume / 2; ++k) {
    const OffsetList& other = out.lists[static_cast<size_t>(volume - 1 - k)];
    out.lists[static_cast<size_t>(k)] = {other.out, other.in, other.size};
  }
  out.lists[static_cast<size_t>(volume / 2)] = {nullptr, nullptr, in->rows()};
  out.n_edges += in->rows();
  out.n_in = out.n_out = in->rows();
  out.in_order = out.out_order = order_of(in);
  return out;
}

RelationLists relate_gather(const std::shared_ptr<const CoordIndex>& in,
                            const std::shared_ptr<const CoordIndex>& target, const Kernel& kernel) {
  const Box needed =
      anchor_box(target->box, kernel).reach(first_offset(kernel), last_offset(kernel));
  RelationLists out = with_keys(*in, needed, [&](const auto& space, const auto* keys) {
    using Space = std::remove_cvref_t<decltype(space)>;
    const auto anchors = make_anchors(space, *target, kernel);
    return merge_lists<Space>(keys, in->rows(), true, anchors.data(), anchors.size(),
                              offset_groups(space, kernel, false), kernel.volume());
  });
  set_ends(out, in, target);
  return out;
}

RelationLists relate_scatter(const std::shared_ptr<const CoordIndex>& in,
                             const std::shared_ptr<const CoordIndex>& target,
                             const Kernel& kernel) {
  const Box needed = anchor_box(in->box, kernel).reach(first_offset(kernel), last_offset(kernel));
  RelationLists out = with_keys(*target, needed, [&](const auto& space, const auto* keys) {
    using Space = std::remove_cvref_t<decltype(space)>;
    const auto anchors = make_anchors(space, *in, kernel);
    return merge_lists<Space>(keys, target->rows(), target->duplicate < 0, anchors.data(),
                              anchors.size(), offset_groups(space, kernel, false), kernel.volume());
  });
  swap_ends(out);
  set_ends(out, in, target);
  return out;
}

RelationLists relate_downscaled(const CoordSpan& coords,
                                const std::shared_ptr<const CoordIndex>& in, const Kernel& kernel,
                                MadeCoords* made) {
  const Box out_box = in->box.divided(kernel.stride);
  return with_space(out_box, [&](const auto& out_space) {
    using OutSpace = std::remove_cvref_t<decltype(out_space)>;
    const FloorDivider x(kernel.stride[0]), y(kernel.stride[1]), z(kernel.stride[2]);
    const auto distinct = coords.visit([&](const auto* c) {
      return distinct_keys(out_space, coords.rows, [&](int64_t i) {
        return out_space.make(c[i * 4], x(c[i * 4 + 1]), y(c[i * 4 + 2]), z(c[i * 4 + 3]));
      });
    });
    *made = decode(out_space, distinct, coords.is64);
    const Box needed = anchor_box(out_box, kernel).reach(first_offset(kernel), last_offset(kernel));
    RelationLists out = with_keys(*in, needed, [&](const auto& space, const auto* keys) {
      using Space = std::remove_cvref_t<decltype(space)>;
      const auto anchors =
          make_anchors<Space, OutSpace>(space, out_space, distinct.keys.data(), distinct.n, kernel);
      return merge_lists<Space>(keys, in->rows(), true, anchors.data(), distinct.n,
                                offset_groups(space, kernel, false), kernel.volume());
    });
    out.n_in = in->rows();
    out.n_out = distinct.n;
    out.in_order = order_of(in);
    out.out_order = distinct.order;
    return out;
  });
}

RelationLists relate_generated(const CoordSpan& coords, const std::shared_ptr<const CoordIndex>& in,
                               const Kernel& kernel, MadeCoords* made) {
  const int64_t volume = kernel.volume();
  if (coords.rows > 0 && volume > std::numeric_limits<int32_t>::max() / coords.rows)
    throw std::length_error("a relation of " + std::to_string(coords.rows) + " rows and " +
                            std::to_string(volume) + " offsets has more than 2^31 - 1 edges");
  const Box out_box = anchor_box(in->box, kernel).reach(first_offset(kernel), last_offset(kernel));
  const int128 lowest =
      coords.is64 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  const int128 highest =
      coords.is64 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
  for (size_t a = 1; a < 4 && !out_box.empty(); ++a)
    if (out_box.lo[a] < lowest || out_box.hi[a] > highest)
      throw std::overflow_error("output coordinate " + std::string(axis_name(static_cast<int>(a))) +
                                " = " +
                                to_string(out_box.lo[a] < lowest ? out_box.lo[a] : out_box.hi[a]) +
                                " leaves the range of " + (coords.is64 ? "int64" : "int32"));
  bool apart = true;
  for (size_t a = 0; a < 3; ++a)
    apart = apart && kernel.size[a] <= kernel.stride[a] && kernel.dilation[a] == 1;
  if (apart) return generate_apart(coords, in, kernel, made);
  return with_space(out_box, [&](const auto& space) {
    using Space = std::remove_cvref_t<decltype(space)>;
    std::vector<typename Space::Key> steps;
    for (int64_t k = 0; k < volume; ++k) {
      const Triple o = kernel.offset(k);
      steps.push_back(space.step(o[0], o[1], o[2]));
    }
    const auto distinct = coords.visit([&](const auto* c) {
      return distinct_keys(space, coords.rows * volume, [&](int64_t candidate) {
        const int64_t i = candidate / volume * 4;
        return Space::add(anchor_key(space, {c[i], c[i + 1], c[i + 2], c[i + 3]}, kernel),
                          steps[static_cast<size_t>(candidate % volume)]);
      });
    });
    *made = decode(space, distinct, coords.is64);
    const auto anchors = make_anchors(space, *in, kernel);
    RelationLists out =
        merge_lists<Space>(distinct.keys.data(), distinct.n, true, anchors.data(), anchors.size(),
                           offset_groups(space, kernel, false), volume);
    swap_ends(out);
    out.n_in = in->rows();
    out.n_out = distinct.n;
    out.in_order = order_of(in);
    out.out_order = distinct.order;
    return out;
  });
}

}  // namespace lattice::cpu
