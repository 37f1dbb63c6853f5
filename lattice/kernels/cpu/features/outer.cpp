// 1. The output positions are cut into parts of a few tiles, the parts into a fixed number of
// chains. A chain has its own float32
//    sums; it walks its parts in order, and the chains are added in order at the end.
// 2. For a part, the rows of both ends that its edges reach lie near each other in position order:
// they are copied once to a
//    small float32 window and stay in the second-level cache while all offsets pass by.
// 3. Edges are taken a hundred or so at a time, so that their rows stay in the first-level cache
// while blocks of M input channels x
//    NV vectors of output channels, held in registers, run over them.
// Threads take (chain, block of input channels).
#include "lattice/kernels/cpu/features/outer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/outer.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/outer-inl.h"

#ifndef LATTICE_KERNELS_CPU_OUTER_CPP
#define LATTICE_KERNELS_CPU_OUTER_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kSumBytes = int64_t{8} << 20;     // sums of all chains
constexpr int64_t kWindowBytes = int64_t{6} << 20;  // copied rows of one part
constexpr int64_t kPartBytes = int64_t{1} << 20;    // what the rows of a part should take
constexpr int64_t kEdgeBytes = 32 << 10;            // rows of the edges taken at a time
constexpr int64_t kMaxChains = 16;
constexpr int64_t kChannelBlock = 64;  // input channels of a task

// Output columns of one group that are summed together.
struct OuterPanel {
  int64_t column, columns, vectors;
  int64_t x_column;  // first input channel of the group
  int64_t sums;      // where its sums of one offset begin
};

// Rows in float32: row of position p at data + (p - first) * stride.
struct FloatRows {
  const float* data;
  int64_t stride;
  int64_t first;
};

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

template <typename T>
class Outer {
 public:
  Outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args)
      : lists_(lists),
        bounds_(bounds.bounds.data()),
        tile_(bounds.tile),
        n_tiles_(bounds.n_tiles),
        args_(args),
        depthwise_(args.groups > 1 && args.c_in == args.groups && args.c_out == args.groups),
        groups_(depthwise_ ? 1 : args.groups),
        rows_(depthwise_ ? 1 : args.c_in / args.groups),
        direct_(std::is_same_v<T, float> && !lists.in_order && !lists.out_order && !depthwise_ &&
                args.c_out / args.groups % kLanes == 0),
        task_per_offset_(direct_ && lists.n_k() >= 8) {
    plan();
  }

  void run() {
    const int64_t n_k = lists_.n_k();
    const int64_t chains = this->chains();
    for (int64_t k0 = 0; k0 < n_k; k0 += offsets_) {
      const int64_t k1 = std::min(n_k, k0 + offsets_);
      const int64_t size = (k1 - k0) * offset_sums_;
      Buffer<float> sums(chains * size);
      const int64_t blocks = depthwise_ ? 1 : (rows_ + kChannelBlock - 1) / kChannelBlock;
      const int64_t lists = task_per_offset_ ? k1 - k0 : 1;
      parallel_for(chains * lists * blocks, [&](int64_t task) {
        const int64_t chain = task / (lists * blocks), list = task / blocks % lists,
                      c0 = task % blocks * kChannelBlock;
        walk(chain, chains, k0 + list, task_per_offset_ ? k0 + list + 1 : k1, c0,
             std::min(rows_, c0 + kChannelBlock), sums.data() + chain * size + list * offset_sums_);
      });
      parallel_for(k1 - k0,
                   [&](int64_t k) { write(k0 + k, sums.data() + k * offset_sums_, chains, size); });
    }
  }

 private:
  void plan() {
    const int64_t columns = args_.c_out / groups_;
    const int64_t vectors = (columns + kLanes - 1) / kLanes;
    const int64_t most = depthwise_ ? vectors : kOuterVectors;
    const int64_t n = (vectors + most - 1) / most;
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t p = 0; p < n; ++p) {
        const int64_t begin = vectors * p / n, end = vectors * (p + 1) / n;
        panels_.push_back({g * columns + begin * kLanes,
                           std::min(end * kLanes, columns) - begin * kLanes, end - begin,
                           depthwise_ ? begin * kLanes : g * rows_, offset_sums_});
        offset_sums_ += (end - begin) * kLanes * rows_;
      }
    offsets_ =
        std::clamp<int64_t>(kSumBytes / 4 / offset_sums_, 1, std::max<int64_t>(1, lists_.n_k()));
    const int64_t part_rows =
        kPartBytes / 4 / (2 * std::min(args_.c_in, kChannelBlock * groups_) + args_.c_out);
    part_tiles_ = std::max<int64_t>(1, part_rows / tile_);
    if (task_per_offset_) part_tiles_ = std::max<int64_t>(1, n_tiles_);
  }

  int64_t parts() const { return (n_tiles_ + part_tiles_ - 1) / part_tiles_; }
  int64_t chains() const {
    const int64_t fit = kSumBytes / 4 / (std::min(offsets_, lists_.n_k()) * offset_sums_ + 1);
    return std::max<int64_t>(1, std::min({kMaxChains, fit, parts()}));
  }

  // Channels [c0, c1) of each group, offsets [k0, k1), the parts of one chain.
  void walk(int64_t chain, int64_t chains, int64_t k0, int64_t k1, int64_t c0, int64_t c1,
            float* sums) const {
    for (int64_t k = k0; k < k1; ++k)
      for (const OuterPanel& p : panels_) {
        float* to = sums + (k - k0) * offset_sums_ + p.sums + c0 * p.vectors * kLanes;
        std::fill(to, to + (c1 - c0) * p.vectors * kLanes, 0.0f);
      }
    Scratch scratch;
    for (int64_t part = parts() * chain / chains; part < parts() * (chain + 1) / chains; ++part)
      add_part(part, k0, k1, c0, c1, sums, scratch);
  }

  struct Scratch {
    Buffer<float> x, y;
    Buffer<int32_t> iota;
  };

  void add_part(int64_t part, int64_t k0, int64_t k1, int64_t c0, int64_t c1, float* sums,
                Scratch& scratch) const {
    const int64_t n_k = lists_.n_k();
    const int32_t* from = bounds_ + part * part_tiles_ * n_k;
    const int32_t* to = bounds_ + std::min(n_tiles_, (part + 1) * part_tiles_) * n_k;
    const int64_t first = part * part_tiles_ * tile_;
    const int64_t rows = std::min(lists_.n_out, first + part_tiles_ * tile_) - first;
    if (direct_) return add_direct(from, to, k0, k1, c0, c1, sums, scratch);
    const auto [lo, hi] = reach(from, to, k0, k1);
    if (lo >= hi) return;
    // With groups the channels of a block are not adjacent: copy whole rows.
    const int64_t x_column = groups_ == 1 ? c0 : 0;
    const int64_t x_columns = depthwise_ || groups_ > 1 ? args_.c_in : c1 - c0;
    const int64_t x_stride = round_up(x_columns, kLine), y_stride = round_up(args_.c_out, kLine);
    const int64_t edges = edge_block(x_stride, std::min(y_stride, kOuterVectors * kLanes));
    const bool window = (hi - lo) * x_stride * 4 <= kWindowBytes;
    resize(scratch.x, (window ? hi - lo : edges) * x_stride + kLine);
    resize(scratch.y, rows * y_stride + kLine);
    if (scratch.iota.size() < std::max(edges, rows)) {
      scratch.iota = Buffer<int32_t>(std::max(edges, part_tiles_ * tile_));
      std::iota(scratch.iota.begin(), scratch.iota.end(), 0);
    }
    copy(static_cast<const T*>(args_.y), lists_.n_out, args_.c_out, 0, args_.c_out,
         lists_.out_order, first, first + rows, scratch.y.data(), y_stride);
    if (window) copy_x(lo, hi, x_column, x_columns, scratch.x.data(), x_stride);
    // Positions are turned into rows of the windows by moving their bases.
    const float* y_base = scratch.y.data() - first * y_stride;
    const float* x_base = window ? scratch.x.data() - lo * x_stride : scratch.x.data();
    for (int64_t k = k0; k < k1; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      for (int64_t e = from[k]; e < to[k]; e += edges) {
        const int64_t n = std::min<int64_t>(edges, to[k] - e);
        OuterEdges some = edges_of(list, e, n, to[k], x_base, x_stride, y_base, y_stride, scratch);
        if (!window) {
          for (int64_t i = 0; i < n; ++i)
            copy_x(list.in_at(e + i), list.in_at(e + i) + 1, x_column, x_columns,
                   scratch.x.data() + i * x_stride, x_stride);
          some.in = scratch.iota.data();
          some.x = scratch.x.data();
          some.ahead = 0;
        }
        some.x -= x_column;
        add_edges(some, c0, c1, sums + (k - k0) * offset_sums_);
      }
    }
  }

  // n edges of a list from e on; `end` is where edges end that may be fetched early. An identity
  // list has position e at both ends.
  static OuterEdges edges_of(const OffsetList& list, int64_t e, int64_t n, int64_t end,
                             const float* x, int64_t x_stride, const float* y, int64_t y_stride,
                             const Scratch& scratch) {
    const int32_t* iota = scratch.iota.data();
    if (!list.in) return {x + e * x_stride, x_stride, iota, y + e * y_stride, y_stride, iota, n, 0};
    return {x,        x_stride,     list.in + e, y,
            y_stride, list.out + e, n,           std::clamp<int64_t>(end - e - kAhead, 0, n)};
  }

  // Float32 rows whose positions are their places in memory are read where they are.
  void add_direct(const int32_t* from, const int32_t* to, int64_t k0, int64_t k1, int64_t c0,
                  int64_t c1, float* sums, Scratch& scratch) const {
    const float *x = static_cast<const float*>(args_.x), *y = static_cast<const float*>(args_.y);
    const int64_t edges = edge_block(c1 - c0, std::min(args_.c_out, kOuterVectors * kLanes));
    if (scratch.iota.empty()) {
      scratch.iota = Buffer<int32_t>(edges);
      std::iota(scratch.iota.begin(), scratch.iota.end(), 0);
    }
    for (int64_t k = k0; k < k1; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      for (int64_t e = from[k]; e < to[k]; e += edges) {
        const int64_t n = std::min<int64_t>(edges, to[k] - e);
        add_edges(edges_of(list, e, n, to[k], x, args_.c_in, y, args_.c_out, scratch), c0, c1,
                  sums + (k - k0) * offset_sums_);
      }
    }
  }

  // Edges whose rows of so many values at both ends are taken at a time.
  static int64_t edge_block(int64_t x_columns, int64_t y_columns) {
    return std::clamp<int64_t>(kEdgeBytes / 4 / (x_columns + y_columns), 16, 1024);
  }

  void add_edges(const OuterEdges& edges, int64_t c0, int64_t c1, float* sums) const {
    for (const OuterPanel& p : panels_) {
      if (depthwise_)
        sum_depthwise(edges, p.x_column, p.column, p.vectors, sums + p.sums);
      else
        kSumEdges[static_cast<size_t>(p.vectors - 1)](edges, p.x_column + c0, c1 - c0, p.column,
                                                      sums + p.sums + c0 * p.vectors * kLanes);
    }
  }

  // Input positions that the edges between two bounds reach.
  std::pair<int64_t, int64_t> reach(const int32_t* from, const int32_t* to, int64_t k0,
                                    int64_t k1) const {
    int64_t lo = lists_.n_in, hi = 0;
    for (int64_t k = k0; k < k1; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      if (from[k] == to[k]) continue;
      if (lists_.monotone) {
        lo = std::min<int64_t>(lo, list.in_at(from[k]));
        hi = std::max<int64_t>(hi, list.in_at(to[k] - 1) + 1);
      } else {
        for (int64_t e = from[k]; e < to[k]; ++e) {
          lo = std::min<int64_t>(lo, list.in_at(e));
          hi = std::max<int64_t>(hi, list.in_at(e) + 1);
        }
      }
    }
    return {lo, hi};
  }

  static void resize(Buffer<float>& buffer, int64_t size) {
    if (buffer.size() < size) buffer = Buffer<float>(size + size / 4);
  }

  // Columns [column, column + columns) of the rows at positions [begin, end).
  static void copy(const T* data, int64_t n, int64_t channels, int64_t column, int64_t columns,
                   const std::shared_ptr<const Buffer<int32_t>>& order, int64_t begin, int64_t end,
                   float* to, int64_t stride) {
    copy_columns(data, n, channels, column, columns, order ? order->data() : nullptr, begin, end,
                 to, stride);
  }

  void copy_x(int64_t begin, int64_t end, int64_t column, int64_t columns, float* to,
              int64_t stride) const {
    copy(static_cast<const T*>(args_.x), lists_.n_in, args_.c_in, column, columns, lists_.in_order,
         begin, end, to, stride);
  }

  // u[k] = the sums of all chains, in order.
  void write(int64_t k, float* sums, int64_t chains, int64_t size) const {
    for (int64_t chain = 1; chain < chains; ++chain)
      for (int64_t i = 0; i < offset_sums_; ++i) sums[i] += sums[chain * size + i];
    const Floats d;
    T* u = static_cast<T*>(args_.u) + k * rows_ * args_.c_out;
    for (const OuterPanel& p : panels_)
      for (int64_t c = 0; c < rows_; ++c) {
        const float* sum = sums + p.sums + c * p.vectors * kLanes;
        for (int64_t j = 0; j < p.columns; j += kLanes)
          store(hn::Load(d, sum + j), d, u + c * args_.c_out + p.column + j, p.columns - j);
      }
  }

  const RelationLists& lists_;
  const int32_t* bounds_;
  int64_t tile_, n_tiles_;
  const OuterArgs& args_;
  bool depthwise_;
  int64_t groups_, rows_;
  bool direct_;           // rows are read where they are
  bool task_per_offset_;  // and each list is a task: nothing is copied, so that nothing is gained
                          // by parts of the rows
  std::vector<OuterPanel> panels_;
  int64_t offset_sums_ = 0;  // sums of one offset
  int64_t offsets_ = 1;      // that are summed at a time
  int64_t part_tiles_ = 1;
};

void run_outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args) {
  visit_float_type(args.storage,
                   [&](auto zero) { Outer<decltype(zero)>(lists, bounds, args).run(); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_outer);

void outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args) {
  check_call("outer", lists, bounds, args.c_in, args.c_out, args.groups);
  HWY_DYNAMIC_DISPATCH(run_outer)(lists, bounds, args);
}
}  // namespace lattice::cpu
#endif
