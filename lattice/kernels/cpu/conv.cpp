// 1. Tasks are ranges of output positions. The input rows that its edges reach are a window of positions, because rows near
//    each other have near neighbours. A task copies the window to float32 in position order, tile by tile: rows scattered in
//    memory are touched once or twice instead of once per edge, and asked for while the tile before is computed.
// 2. For each tile and each panel of output columns the float32 sums lie in a small array; list k adds its edges in blocks of
//    M edges, with the packed weight block (k, panel).
// 3. The tile is rounded and written to its rows.
// An output row belongs to one task, and no size chosen here changes the order of summation.
#include "lattice/kernels/cpu/conv.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/targets.h"
#include "lattice/kernels/cpu/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/conv.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/conv-inl.h"

#ifndef LATTICE_KERNELS_CPU_CONV_CPP
#define LATTICE_KERNELS_CPU_CONV_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kPackedFloats = int64_t{7} << 18;  // weights kept for the whole call: 7 MiB
constexpr int64_t kWindowFloats = int64_t{1} << 20;  // window of a task: at most 4 MiB
constexpr int64_t kTaskFloats = int64_t{1} << 19;    // aim of a task: its own rows fill 2 MiB of the window
constexpr int64_t kTaskRows = 16384;
constexpr int64_t kTileFloats = int64_t{1} << 13;  // sums of a tile and panel: 32 KiB
constexpr int64_t kListRows = 256;                 // rows copied at a time without a window

// Output columns that are computed together.
struct Panel {
  int64_t column;
  int64_t columns;
  int64_t vectors;   // that hold them
  int64_t x_column;  // first input column
  int64_t packed;    // where its weights of one offset begin
};

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

template <typename T>
class Conv {
 public:
  Conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args)
      : lists_(lists),
        bounds_(bounds.bounds.data()),
        n_k_(lists.n_k()),
        tile_(bounds.tile),
        n_tiles_(bounds.n_tiles),
        args_(args),
        x_(static_cast<const T*>(args.x)),
        y_(static_cast<T*>(args.y)),
        c_in_(args.c_in / args.groups),
        depthwise_(args.c_in == args.groups && args.c_out == args.groups && args.groups > 1),
        in_order_(lists.in_order ? lists.in_order->data() : nullptr),
        out_order_(lists.out_order ? lists.out_order->data() : nullptr),
        stride_(round_up(args.c_in, kLine)) {
    plan();
  }

  void run() {
    if (keep_weights_) pack();
    const int64_t n_tasks = (n_tiles_ + tiles_per_task_ - 1) / tiles_per_task_;
    const int64_t n_panels = static_cast<int64_t>(panels_.size());
    // Few tasks, or weights that are made as they are used: a task takes one panel.
    const int64_t split = !keep_weights_ || n_tasks < 4 * thread_count() ? n_panels : 1;
    parallel_for(n_tasks * split, [&](int64_t i) {
      const int64_t t = i / split * tiles_per_task_, p = i % split;
      task(t, std::min(n_tiles_, t + tiles_per_task_), n_panels * p / split, n_panels * (p + 1) / split);
    });
  }

 private:
  void plan() {
    const int64_t groups = depthwise_ ? 1 : args_.groups;
    const int64_t c_out = args_.c_out / groups;
    const int64_t vectors = (c_out + kLanes - 1) / kLanes;
    const int64_t n = (vectors + kMaxVectors - 1) / kMaxVectors;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t p = 0; p < n; ++p) {
        const int64_t begin = vectors * p / n * kLanes, end = vectors * (p + 1) / n * kLanes;
        const int64_t column = g * c_out + begin;
        panels_.push_back(
            {column, std::min(end, c_out) - begin, (end - begin) / kLanes, depthwise_ ? column : g * c_in_, packed_});
        packed_ += packed_size(panels_.back());
      }
    }
    keep_weights_ = args_.weight->keep_all() && n_k_ * packed_ <= kPackedFloats;
    const int64_t rows = std::min(kTaskRows, kTaskFloats / stride_);
    tiles_per_task_ = std::clamp<int64_t>(n_tiles_ / (8 * thread_count()), 1, std::max<int64_t>(1, rows / tile_));
  }

  bool paired(const Panel& p) const { return !depthwise_ && kListKernels[p.vectors - 1].paired; }
  int64_t packed_size(const Panel& p) const { return round_up(c_in_, paired(p) ? 2 : 1) * p.vectors * kLanes; }

  // The block (k, panel) as the kernel reads it: rows of columns; paired, rows c and c + 1 interleaved.
  void fill(int64_t k, const Panel& p, float* dst) const {
    const int64_t width = p.vectors * kLanes;
    args_.weight->fill(k, p.column, p.columns, width, dst);
    if (!paired(p)) return;
    float pair[2 * kMaxVectors * kLanes];
    for (int64_t c = 0; c < c_in_; c += 2, dst += 2 * width) {
      for (int64_t j = 0; j < width; ++j) {
        pair[2 * j] = dst[j];
        pair[2 * j + 1] = c + 1 < c_in_ ? dst[width + j] : 0.0f;
      }
      std::copy(pair, pair + 2 * width, dst);
    }
  }

  HWY_NOINLINE void pack() {
    weights_ = Buffer<float>(n_k_ * packed_);
    parallel_for(n_k_, [&](int64_t k) {
      if (lists_.lists[k].size == 0) return;
      for (const Panel& p : panels_) fill(k, p, weights_.data() + k * packed_ + p.packed);
    });
  }

  // Edges of list k on tiles [t0, t1).
  int64_t first_edge(int64_t t, int64_t k) const { return bounds_[t * n_k_ + k]; }

  // Smallest and one past the largest input position of tiles [t0, t1).
  std::pair<int64_t, int64_t> window(int64_t t0, int64_t t1) const {
    int32_t lo = INT32_MAX, hi = -1;
    for (int64_t k = 0; k < n_k_; ++k) {
      const int64_t e0 = first_edge(t0, k), e1 = first_edge(t1, k);
      if (e0 == e1) continue;
      const OffsetList& list = lists_.lists[k];
      if (lists_.monotone || !list.in) {
        lo = std::min(lo, list.in_at(e0));
        hi = std::max(hi, list.in_at(e1 - 1));
      } else {
        for (int64_t e = e0; e < e1; ++e) {
          lo = std::min(lo, list.in[e]);
          hi = std::max(hi, list.in[e]);
        }
      }
    }
    return hi < 0 ? std::pair<int64_t, int64_t>{0, 0} : std::pair<int64_t, int64_t>{lo, int64_t{hi} + 1};
  }

  void task(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    const auto [lo, hi] = window(t0, t1);
    const bool fits = (hi - lo) * stride_ <= kWindowFloats;
    if (!fits && t1 - t0 > 1) {
      task(t0, (t0 + t1) / 2, p0, p1);
      return task((t0 + t1) / 2, t1, p0, p1);
    }
    int64_t width = 0, block = 0;
    for (int64_t p = p0; p < p1; ++p) {
      width = std::max(width, panels_[p].vectors * kLanes);
      block = std::max(block, packed_size(panels_[p]));
    }
    const int64_t step = keep_weights_ ? std::clamp<int64_t>(kTileFloats / (width * tile_), 1, t1 - t0) : t1 - t0;
    const int64_t rows_size = (fits ? hi - lo : kListRows) * stride_ + kLine;
    const int64_t sums_size = step * tile_ * width;
    if (keep_weights_) block = 0;
    // Sizes vary from task to task; powers of two come back from the pool.
    Buffer<float> floats(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows_size + sums_size + block))));
    Buffer<int32_t> ints(step * tile_ + 2 * kListRows);
    Scratch s{lo,
              hi,
              lo,
              fits,
              floats.data(),
              floats.data() + rows_size,
              floats.data() + rows_size + sums_size,
              ints.data(),
              ints.data() + step * tile_};
    for (int64_t t = t0; t < t1; t += step) tiles(t, std::min(t + step, t1), p0, p1, &s);
  }

  struct Scratch {
    int64_t lo, hi;  // window
    int64_t copied;  // rows [lo, copied) are there
    bool fits;
    float* rows;
    float* sums;
    float* block;
    int32_t* positions;  // of the tile: what an identity list reads
    int32_t* list_rows;  // kListRows rows, then 0 .. kListRows - 1
  };

  // Tiles [t, t1) of panels [p0, p1).
  void tiles(int64_t t, int64_t t1, int64_t p0, int64_t p1, Scratch* s) const {
    const int64_t first = t * tile_;
    const int64_t n = std::min(t1 * tile_, lists_.n_out) - first;
    for (int64_t i = 0; i < n; ++i) s->positions[i] = static_cast<int32_t>(first + i);
    if (s->fits) {
      const int64_t end = lists_.monotone ? std::max(s->copied, window(t, t1).second) : s->hi;
      copy_rows(x_, lists_.n_in, args_.c_in, in_order_, s->copied, end, s->rows + (s->copied - s->lo) * stride_,
                stride_);
      s->copied = end;
    }
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = panels_[p];
      start(panel, n, s->sums);
      for (int64_t k = 0; k < n_k_; ++k) {
        const int64_t e = first_edge(t, k), m = first_edge(t1, k) - e;
        if (m == 0) continue;
        const float* w = weights_.data() + k * packed_ + panel.packed;
        if (!keep_weights_) {
          fill(k, panel, s->block);
          w = s->block;
        }
        const OffsetList& list = lists_.lists[k];
        const int32_t* in = list.in ? list.in + e : s->positions + (e - first);
        const int32_t* out = list.out ? list.out + e : s->positions + (e - first);
        ListCall call{{s->rows + panel.x_column, stride_, static_cast<int32_t>(s->lo)},
                      in,
                      out,
                      m,
                      c_in_,
                      w,
                      s->sums,
                      static_cast<int32_t>(first)};
        add(panel, call, s);
      }
      finish(panel, first, n, s->sums);
    }
  }

  void add(const Panel& panel, ListCall& call, Scratch* s) const {
    const ListKernel& kernel = kListKernels[panel.vectors - 1];
    const auto add_list = depthwise_ ? kernel.add_depthwise : kernel.add;
    if (s->fits) return add_list(call);
    // No window: the rows of the edges themselves, a few at a time.
    const int64_t n = call.n;
    const int32_t* in = call.in;
    int32_t* rows = s->list_rows;
    int32_t* count = rows + kListRows;
    call.rows.first = 0;
    call.in = count;
    for (int64_t e = 0; e < n; e += call.n) {
      call.n = std::min(kListRows, n - e);
      for (int64_t i = 0; i < call.n; ++i) {
        rows[i] = in_order_ ? in_order_[in[e + i]] : in[e + i];
        count[i] = static_cast<int32_t>(i);
      }
      copy_rows(x_, lists_.n_in, args_.c_in, rows, 0, call.n, s->rows, stride_);
      add_list(call);
      call.out += call.n;
    }
  }

  HWY_NOINLINE void start(const Panel& p, int64_t n, float* sums) const {
    const Floats d;
    const int64_t width = p.vectors * kLanes;
    HWY_ALIGN float initial[kMaxVectors * kLanes] = {};
    if (args_.bias) {
      for (int64_t c = 0; c < p.columns; ++c) initial[c] = widen(static_cast<const T*>(args_.bias)[p.column + c]);
    }
    for (int64_t r = 0; r < n; ++r, sums += width) {
      for (int64_t c = 0; c < width; c += kLanes) hn::Store(hn::Load(d, initial + c), d, sums + c);
    }
  }

  HWY_NOINLINE void finish(const Panel& p, int64_t first, int64_t n, const float* sums) const {
    const Floats d;
    for (int64_t r = 0; r < n; ++r, sums += p.vectors * kLanes) {
      if (out_order_ && r + 8 < n) prefetch_row(y_ + out_order_[first + r + 8] * args_.c_out + p.column, p.columns);
      T* row = y_ + (out_order_ ? out_order_[first + r] : first + r) * args_.c_out + p.column;
      for (int64_t c = 0; c < p.columns; c += kLanes) store(hn::Load(d, sums + c), d, row + c, p.columns - c);
    }
  }

  const RelationLists& lists_;
  const int32_t* bounds_;
  int64_t n_k_, tile_, n_tiles_;
  const ConvArgs& args_;
  const T* x_;
  T* y_;
  int64_t c_in_;  // of a group
  bool depthwise_;
  const int32_t* in_order_;
  const int32_t* out_order_;
  int64_t stride_;  // of copied rows
  std::vector<Panel> panels_;
  int64_t packed_ = 0;  // floats of one offset's weights
  int64_t tiles_per_task_ = 1;
  bool keep_weights_ = true;
  Buffer<float> weights_;
};

void run_conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  visit_storage(args.storage, [&](auto zero) { Conv<decltype(zero)>(lists, bounds, args).run(); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_conv);

void DenseWeight::fill(int64_t k, int64_t column, int64_t columns, int64_t width, float* dst) const {
  const int64_t step = group_columns == 1 ? stride_group : stride_out;
  visit_storage(storage, [&](auto zero) {
    using T = decltype(zero);
    const T* block = static_cast<const T*>(data) + k * stride_k + column / group_columns * stride_group +
                     column % group_columns * stride_out;
    for (int64_t c = 0; c < rows; ++c, dst += width) {
      for (int64_t j = 0; j < columns; ++j) dst[j] = widen(block[c * stride_in + j * step]);
      std::fill(dst + columns, dst + width, 0.0f);
    }
  });
}

int64_t conv_tile(const RelationLists&) { return 256; }

void conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  HWY_DYNAMIC_DISPATCH(run_conv)(lists, bounds, args);
}

}  // namespace lattice::cpu
#endif
