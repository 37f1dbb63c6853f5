#include "lattice/kernels/cpu/geometry/relations.h"

#include <limits>
#include <stdexcept>

#include "lattice/kernels/cpu/geometry/relations_parts-inl.h"

namespace lattice::cpu {
namespace {

// Outputs of two inputs never meet: size <= stride and no dilation. Output (i, k) is row i * K + k.
// It has position p * K + k for the input at position p, so the outputs of one input lie side
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
