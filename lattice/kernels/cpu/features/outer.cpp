// 1. The tiles of output positions are cut into a fixed number of chains. A chain has its own
//    float32 sums; the chains are added in order at the end. Sizes of caches, vectors and threads
//    do not change the chains, so they do not change the bits.
// 2. A chain walks its parts of a few tiles. The rows of both ends that the edges of a part reach
//    lie near each other in position order. A part copies these rows once to a small float32
//    window, which stays in the second-level cache while all offsets pass by. The input rows of a
//    part overlap those of the part before, and only the new rows are copied.
// 3. About a hundred edges are processed at a time, so that their rows stay in the first-level
// cache.
//    Blocks of M input channels x NV vectors of output channels, held in registers, run over these
//    rows. Narrow vectors read the channels from panels (outer_panels-inl.h).
// A task is a pair of a chain and a block of input channels.
#include "lattice/kernels/cpu/features/outer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/base/caches.h"
#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/sliding_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/outer.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/outer-inl.h"
#include "lattice/kernels/cpu/features/outer_panels-inl.h"

#ifndef LATTICE_KERNELS_CPU_OUTER_CPP
#define LATTICE_KERNELS_CPU_OUTER_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kSumBytes = int64_t{8} << 20;     // sums of all chains
constexpr int64_t kWindowBytes = int64_t{6} << 20;  // copied rows of one part
constexpr int64_t kEdgeBytes = 32 << 10;            // rows of the edges that are processed together
constexpr int64_t kMaxChains = 16;
constexpr int64_t kChainTiles = 4;  // of a chain, at least
// With narrow vectors, input rows of up to this many channels are read in place, longer ones from
// panels.
constexpr int64_t kInPlaceChannels = 128;
constexpr int64_t kInPlaceEdges = 128;
// Rows of up to this many channels are not copied either. Rows whose size is a power of two of
// cache lines use few cache sets, so fewer edges are taken at a time.
constexpr int64_t kDirectChannels = 64;
constexpr int64_t kDirectFloats = 4096;
constexpr int64_t kChannelBlock = 64;  // input channels of a task, at least

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
        shape_(args.shape),
        depthwise_(shape_.is_depthwise()),
        groups_(depthwise_ ? 1 : shape_.groups),
        rows_(depthwise_ ? 1 : shape_.in_group()),
        direct_((!kPanels || std::max(shape_.c_in, shape_.c_out) <= kDirectChannels) &&
                std::is_same_v<T, float> && !lists.in_order && !lists.out_order && !depthwise_ &&
                shape_.out_group() % kLanes == 0),
        task_per_offset_(!kPanels && direct_ && lists.n_k() >= 8) {
    plan();
  }

  void run() {
    const int64_t n_k = lists_.n_k();
    for (int64_t k0 = 0; k0 < n_k; k0 += offsets_) {
      const int64_t k1 = std::min(n_k, k0 + offsets_);
      const int64_t size = (k1 - k0) * offset_sums_;
      Buffer<float> sums(chains_ * size);
      const int64_t lists = task_per_offset_ ? k1 - k0 : 1;
      parallel_for(chains_ * lists * blocks_, [&](int64_t task) {
        const int64_t chain = task / (lists * blocks_), list = task / blocks_ % lists,
                      b = task % blocks_;
        walk(chain, k0 + list, task_per_offset_ ? k0 + list + 1 : k1, rows_ * b / blocks_,
             rows_ * (b + 1) / blocks_, sums.data() + chain * size + list * offset_sums_);
      });
      parallel_for(k1 - k0, [&](int64_t k) {
        write(k0 + k, sums.data() + k * offset_sums_, chains_, size);
      });
    }
  }

 private:
  void plan() {
    const int64_t columns = shape_.c_out / groups_;
    // A depthwise convolution has only one sum per column, so one panel holds them all.
    panels_ = cut_panels(shape_, kLanes, depthwise_ ? columns : kOuterVectors);
    for (Panel& p : panels_) {
      p.begin = offset_sums_;
      offset_sums_ += p.vectors * kLanes * rows_;
    }
    // Sums are counted as if vectors had 16 values, because chains must not depend on the
    // instruction set.
    const int64_t counted = round_up(columns, kLine) * groups_ * rows_;
    offsets_ = std::clamp<int64_t>(kSumBytes / 4 / counted, 1, std::max<int64_t>(1, lists_.n_k()));
    chains_ = std::max<int64_t>(
        1, std::min({kMaxChains, kSumBytes / 4 / (offsets_ * counted), n_tiles_ / kChainTiles}));
    // With narrow vectors every block copies the output rows again, so there are no more blocks
    // than the threads need.
    const int64_t most_blocks = depthwise_ ? 1 : (rows_ + kChannelBlock - 1) / kChannelBlock;
    const int64_t wanted = (2 * thread_count() + chains_ - 1) / chains_;
    blocks_ = !kPanels ? most_blocks : thread_count() == 1 ? 1 : std::min(most_blocks, wanted);
    const int64_t part_bytes = std::clamp<int64_t>(caches().second, 1 << 18, 1 << 20);
    const int64_t part_rows =
        part_bytes / 4 / (2 * ((rows_ + blocks_ - 1) / blocks_) * groups_ + shape_.c_out);
    part_tiles_ =
        task_per_offset_ ? std::max<int64_t>(1, n_tiles_) : std::max<int64_t>(1, part_rows / tile_);
  }

  // Channels [c0, c1) of each group, offsets [k0, k1), the parts of one chain.
  void walk(int64_t chain, int64_t k0, int64_t k1, int64_t c0, int64_t c1, float* sums) const {
    for (int64_t k = k0; k < k1; ++k)
      for (const Panel& p : panels_) {
        float* to = sums + (k - k0) * offset_sums_ + p.begin + c0 * p.vectors * kLanes;
        std::fill(to, to + (c1 - c0) * p.vectors * kLanes, 0.0f);
      }
    Scratch scratch;
    const int64_t end = n_tiles_ * (chain + 1) / chains_;
    for (int64_t t = n_tiles_ * chain / chains_; t < end; t += part_tiles_)
      add_part(t, std::min(end, t + part_tiles_), k0, k1, c0, c1, sums, scratch);
  }

  struct Scratch {
    SlidingRows x;
    Buffer<float> y;
    Buffer<float> x_panels;
    const float* x_end;  // of the rows that edges read
    Buffer<int32_t> iota;
  };

  // The edges of the tiles [t0, t1).
  void add_part(int64_t t0, int64_t t1, int64_t k0, int64_t k1, int64_t c0, int64_t c1, float* sums,
                Scratch& scratch) const {
    const int64_t n_k = lists_.n_k();
    const int32_t *from = bounds_ + t0 * n_k, *to = bounds_ + t1 * n_k;
    const int64_t first = t0 * tile_, rows = std::min(lists_.n_out, t1 * tile_) - first;
    if (direct_) return add_direct(from, to, k0, k1, c0, c1, sums, scratch);
    const auto [lo, hi] = input_window(lists_, from, to, k0, k1);
    if (lo >= hi) return;
    // With groups the channels of a block are not adjacent: copy whole rows.
    const int64_t x_column = groups_ == 1 ? c0 : 0;
    const int64_t x_columns = depthwise_ || groups_ > 1 ? shape_.c_in : c1 - c0;
    const int64_t x_stride = row_stride(x_columns), y_stride = row_stride(shape_.c_out);
    const int64_t edges = edge_block(c1 - c0, std::min(shape_.c_out, kOuterVectors * kLanes));
    const bool window = (hi - lo) * x_stride * 4 <= kWindowBytes;
    if (window)
      scratch.x.slide({lo, hi}, x_stride, kLine, kWindowBytes / 4);
    else
      scratch.x.resize(edges * x_stride + kLine);
    float* x = scratch.x.floats.data();
    resize(scratch.y, rows * y_stride + kLine);
    if (scratch.iota.size() < std::max(edges, rows)) {
      scratch.iota = Buffer<int32_t>(std::max(edges, part_tiles_ * tile_));
      std::iota(scratch.iota.begin(), scratch.iota.end(), 0);
    }
    copy_columns<T>({static_cast<const T*>(args_.y), lists_.n_out, shape_.c_out, 0, shape_.c_out,
                     lists_.out_rows()},
                    first, first + rows, scratch.y.data(), y_stride);
    scratch.x_end = x + scratch.x.floats.size();
    if (window) {
      auto& held = scratch.x.held;
      copy_x(held.hi, hi, x_column, x_columns, x + (held.hi - scratch.x.first) * x_stride,
             x_stride);
      held.hi = hi;
    }
    // Positions are turned into rows of the windows by moving their bases.
    const float* y_base = scratch.y.data() - first * y_stride;
    const float* x_base = window ? x - scratch.x.first * x_stride : x;
    for (int64_t k = k0; k < k1; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      for (int64_t e = from[k]; e < to[k]; e += edges) {
        const int64_t n = std::min<int64_t>(edges, to[k] - e);
        OuterEdges some =
            edges_of(list, e, n, to[k], {x_base, x_stride, y_base, y_stride}, scratch);
        if (!window) {
          for (int64_t i = 0; i < n; ++i)
            copy_x(list.in_at(e + i), list.in_at(e + i) + 1, x_column, x_columns, x + i * x_stride,
                   x_stride);
          some.in = scratch.iota.data();
          some.x = x;
          some.ahead = 0;
        }
        some.x -= x_column;
        add_edges(some, c0, c1, sums + (k - k0) * offset_sums_, scratch);
      }
    }
  }

  // Values between copied rows. Panels want an odd number of cache lines.
  static int64_t row_stride(int64_t columns) {
    const int64_t lines = (columns + kLine - 1) / kLine;
    return (kPanels && lines % 2 == 0 ? lines + 1 : lines) * kLine;
  }

  // Rows that edges read, by position.
  struct BothEnds {
    const float* x;
    int64_t x_stride;
    const float* y;
    int64_t y_stride;
  };

  // n edges of a list from e on; edges before `end` may be fetched early. An identity list has
  // position e at both ends.
  static OuterEdges edges_of(const OffsetList& list, int64_t e, int64_t n, int64_t end,
                             const BothEnds& ends, const Scratch& scratch) {
    const auto [x, x_stride, y, y_stride] = ends;
    const int32_t* iota = scratch.iota.data();
    if (!list.in) return {x + e * x_stride, x_stride, iota, y + e * y_stride, y_stride, iota, n, 0};
    return {x,        x_stride,     list.in + e, y,
            y_stride, list.out + e, n,           std::clamp<int64_t>(end - e - kAhead, 0, n)};
  }

  // Float32 rows whose positions are their places in memory are read where they are.
  void add_direct(const int32_t* from, const int32_t* to, int64_t k0, int64_t k1, int64_t c0,
                  int64_t c1, float* sums, Scratch& scratch) const {
    const float *x = static_cast<const float*>(args_.x), *y = static_cast<const float*>(args_.y);
    const int64_t edges = edge_block(c1 - c0, std::min(shape_.c_out, kOuterVectors * kLanes));
    if (scratch.iota.empty()) {
      scratch.iota = Buffer<int32_t>(edges);
      std::iota(scratch.iota.begin(), scratch.iota.end(), 0);
    }
    for (int64_t k = k0; k < k1; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      for (int64_t e = from[k]; e < to[k]; e += edges) {
        const int64_t n = std::min<int64_t>(edges, to[k] - e);
        add_edges(edges_of(list, e, n, to[k], {x, shape_.c_in, y, shape_.c_out}, scratch), c0, c1,
                  sums + (k - k0) * offset_sums_, scratch);
      }
    }
  }

  // How many edges to process at a time, so that their rows at both ends stay in the first-level
  // cache.
  int64_t edge_block(int64_t x_columns, int64_t y_columns) const {
    if (!kPanels) return std::clamp<int64_t>(kEdgeBytes / 4 / (x_columns + y_columns), 16, 1024);
    if (!direct_) return x_columns <= kInPlaceChannels ? kInPlaceEdges : kPanelEdges;
    return std::clamp<int64_t>(kDirectFloats / std::max(shape_.c_in, shape_.c_out), 16,
                               kInPlaceEdges);
  }

  void add_edges(const OuterEdges& edges, int64_t c0, int64_t c1, float* sums,
                 Scratch& scratch) const {
    if (kPanels && !depthwise_) return add_packed(edges, c0, c1, sums, scratch);
    for (const Panel& p : panels_) {
      if (depthwise_)
        sum_depthwise(edges, p.x_column, p.column, p.vectors, sums + p.begin);
      else
        kSumEdges[static_cast<size_t>(p.vectors - 1)](edges, p.x_column + c0, c1 - c0, p.column,
                                                      sums + p.begin + c0 * p.vectors * kLanes);
    }
  }

  // The same for at most kPanelEdges edges, whose rows go into panels first.
  void add_packed(const OuterEdges& edges, int64_t c0, int64_t c1, float* sums,
                  Scratch& scratch) const {
    const bool in_place = c1 - c0 <= kInPlaceChannels;
    if (!in_place) resize(scratch.x_panels, channel_panels(c1 - c0) * kPanelX);
    int64_t x_at[kPanelEdges], y_at[kPanelEdges];
    if (in_place) find_rows(edges.in, edges.n, edges.x_stride, x_at);
    find_rows(edges.out, edges.n, edges.y_stride, y_at);
    int64_t packed = -1;
    for (const Panel& p : panels_) {
      if (!in_place && p.x_column != packed) {
        pack_x(edges, p.x_column + c0, c1 - c0, scratch.x_end, scratch.x_panels.data());
        packed = p.x_column;
      }
      const float* x = in_place ? edges.x + p.x_column + c0 : scratch.x_panels.data();
      kSumPanels[static_cast<size_t>(p.vectors - 1)](
          {x, in_place ? x_at : nullptr, edges.y + p.column, y_at, edges.n}, c1 - c0,
          sums + p.begin + c0 * p.vectors * kLanes);
    }
  }

  static void resize(Buffer<float>& buffer, int64_t size) {
    if (buffer.size() < size) buffer = Buffer<float>(size + size / 4);
  }

  // Columns [column, column + columns) of the rows at positions [begin, end).
  void copy_x(int64_t begin, int64_t end, int64_t column, int64_t columns, float* to,
              int64_t stride) const {
    copy_columns<T>({static_cast<const T*>(args_.x), lists_.n_in, shape_.c_in, column, columns,
                     lists_.in_rows()},
                    begin, end, to, stride);
  }

  // u[k] = the sums of all chains, in order.
  void write(int64_t k, float* sums, int64_t chains, int64_t size) const {
    for (int64_t chain = 1; chain < chains; ++chain)
      for (int64_t i = 0; i < offset_sums_; ++i) sums[i] += sums[chain * size + i];
    const Floats d;
    T* u = static_cast<T*>(args_.u) + k * rows_ * shape_.c_out;
    for (const Panel& p : panels_)
      for (int64_t c = 0; c < rows_; ++c) {
        const float* sum = sums + p.begin + c * p.vectors * kLanes;
        for (int64_t j = 0; j < p.columns; j += kLanes)
          store(hn::Load(d, sum + j), d, u + c * shape_.c_out + p.column + j, p.columns - j);
      }
  }

  const RelationLists& lists_;
  const int32_t* bounds_;
  int64_t tile_, n_tiles_;
  const OuterArgs& args_;
  ConvShape shape_;
  bool depthwise_;
  int64_t groups_, rows_;
  bool direct_;           // rows are read where they are
  bool task_per_offset_;  // and each list is a task, because without copies nothing is gained
                          // by parts of the rows
  std::vector<Panel> panels_;
  int64_t offset_sums_ = 0;  // sums of one offset
  int64_t offsets_ = 1;      // that are summed at a time
  int64_t chains_ = 1;
  int64_t blocks_ = 1;  // of input channels
  int64_t part_tiles_ = 1;
};

void run_outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args) {
  visit_float_type(args.shape.storage,
                   [&](auto zero) { Outer<decltype(zero)>(lists, bounds, args).run(); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_outer);

void outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args) {
  check_call("outer", lists, bounds, args.shape);
  HWY_DYNAMIC_DISPATCH(run_outer)(lists, bounds, args);
}
}  // namespace lattice::cpu
#endif
