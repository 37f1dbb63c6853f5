// 1. Tasks are ranges of output positions, cut into steps of a few tiles. The input rows that the
//    edges of a step reach are a window of positions, because rows near each other have near
//    neighbors. A ring holds the rows of the window as float32 in position order, and moves on with
//    the steps. So rows scattered in memory are touched once instead of once per edge. float32 rows
//    whose positions are their places in memory need no copy.
// 2. For each step and each panel of output columns the float32 sums lie in a small array. List k
//    adds its edges in blocks of M edges, with the packed weight block (k, panel).
// 3. The sums are rounded and written to their rows. With narrow vectors, rows of one edge are
//    written from registers. 2x2x2 up at C = 64 takes 0.87 of the time with AVX2. With AVX-512,
//    which has a quarter of the panels, it would take 1.05 of the time.
// An output row belongs to one task, and no size chosen here changes the order of summation.
//
// Panels and windows are planned in conv_plan.h, blocks of edges multiplied and sums written in
// conv-inl.h. Where many edges of an offset share an output row, conv_buckets-inl.h adds their
// input rows first.
//
// What was tried with rows shuffled in memory and brought nothing:
// - prefetching rows of the next step between the blocks of this step: the requests wait for page
//   walks;
// - windows as large as a task;
// - 2x2x2 down in pieces of 24 or 48 edges that meet all panels, with rows read where they lie and
//   asked for one piece ahead: the same time on room with AVX2;
// - 64 columns of a row written together (AVX2: 3x3x3 at C = 64 1 % faster, at C = 16 4 % slower);
// - rows zeroed before instead of after.
#include "lattice/kernels/cpu/features/conv.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/conv.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/conv-inl.h"
#include "lattice/kernels/cpu/features/conv_buckets-inl.h"

#ifndef LATTICE_KERNELS_CPU_CONV_CPP
#define LATTICE_KERNELS_CPU_CONV_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kWindowFloats = int64_t{1} << 20;  // ring: at most 4 MiB
constexpr int64_t kTaskFloats = int64_t{1} << 19;    // aim of a task: input rows of 2 MiB
constexpr int64_t kTaskRows = 16384;
constexpr int64_t kStepFloats = int64_t{1} << 13;    // sums of a step and panel: 32 KiB
constexpr int64_t kCachedFloats = int64_t{3} << 16;  // rows that need not be asked for: 768 KiB
constexpr int64_t kListRows = 256;                   // rows copied at a time without a window
constexpr int64_t kWholeRows = 192;  // multiplied with all panels before the next rows come
constexpr int64_t kFillEdges = 256;  // that share a block which is made as it is used

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// The weights as the kernels read them: one packed block per offset and panel. Weights of at most
// 64 MiB are packed once per call, unless the caller brings their panels. A block of larger weights
// is made where it is used.
class ConvWeights {
 public:
  ConvWeights(int64_t n_k, const ConvArgs& args)
      : n_k_(n_k),
        args_(args),
        rows_(args.shape.in_group()),
        depthwise_(args.shape.is_depthwise()),
        panels_(cut_panels(args.shape, kLanes, kMaxVectors)) {
    constexpr int64_t kPackedFloats = int64_t{64} << 18;  // 64 MiB
    for (Panel& p : panels_) {
      p.begin = offset_floats_;
      offset_floats_ += block_floats(p);
    }
    packs_all_ = args.weight->keep_all() && n_k * offset_floats_ <= kPackedFloats;
  }

  const std::vector<Panel>& panels() const { return panels_; }
  // All blocks are in memory during the call.
  bool packs_all() const { return packs_all_; }
  // The blocks could be in memory, but there are too many.
  bool too_large() const { return args_.weight->keep_all() && !packs_all_; }
  int64_t block_floats(const Panel& p) const {
    return round_up(rows_, paired(p) ? 2 : 1) * p.vectors * kLanes;
  }

  // Before the first block: packs the weights of offsets that have edges, unless the caller brought
  // the panels.
  void pack(const RelationLists& lists) {
    if (!packs_all_) return;
    const WeightPanels* given = args_.panels;
    if (given && given->target == HWY_TARGET && given->n_k == n_k_ && given->shape == args_.shape) {
      all_ = given->blocks.data();
      return;
    }
    own_ = Buffer<float>(n_k_ * offset_floats_);
    pack_into(own_.data(), [&](int64_t k) { return lists.lists[k].size > 0; });
    all_ = own_.data();
  }

  // All blocks; not more than packs_all() allows.
  Buffer<float> packed() const {
    Buffer<float> blocks(n_k_ * offset_floats_);
    pack_into(blocks.data(), [](int64_t) { return true; });
    return blocks;
  }

  // The block of offset k and panel p; `room` is where it is made if it is not in memory.
  const float* block(int64_t k, const Panel& p, float* room) const {
    if (packs_all_) return all_ + k * offset_floats_ + p.begin;
    fill(k, p, room);
    return room;
  }

 private:
  bool paired(const Panel& p) const { return !depthwise_ && kListKernels[p.vectors - 1].paired; }

  // Rows of columns; paired, rows c and c + 1 interleaved.
  void fill(int64_t k, const Panel& p, float* dst) const {
    const int64_t width = p.vectors * kLanes;
    args_.weight->fill(k, p.column, p.columns, width, dst);
    if (!paired(p)) return;
    float pair[2 * kMaxVectors * kLanes];
    for (int64_t c = 0; c < rows_; c += 2, dst += 2 * width) {
      for (int64_t j = 0; j < width; ++j) {
        pair[2 * j] = dst[j];
        pair[2 * j + 1] = c + 1 < rows_ ? dst[width + j] : 0.0f;
      }
      std::copy(pair, pair + 2 * width, dst);
    }
  }

  template <typename Wanted>
  void pack_into(float* to, const Wanted& wanted) const {
    const auto n_panels = static_cast<int64_t>(panels_.size());
    parallel_for(n_k_ * n_panels, [&](int64_t i) {
      const int64_t k = i / n_panels;
      const Panel& p = panels_[static_cast<size_t>(i % n_panels)];
      if (wanted(k)) fill(k, p, to + k * offset_floats_ + p.begin);
    });
  }

  int64_t n_k_;
  const ConvArgs& args_;
  int64_t rows_;  // input channels of a group
  bool depthwise_;
  std::vector<Panel> panels_;
  int64_t offset_floats_ = 0;  // blocks of one offset
  bool packs_all_ = true;
  Buffer<float> own_;
  const float* all_ = nullptr;  // own_, or what the caller brought
};

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
        c_in_(args.shape.in_group()),
        depthwise_(args.shape.is_depthwise()),
        buckets_(args.add_shared_first && !depthwise_),
        in_order_(lists.in_rows()),
        out_order_(lists.out_rows()),
        direct_(std::is_same_v<T, float> && !in_order_ && !depthwise_ && !args.more),
        scattered_(direct_ && lists.n_in * args.shape.c_in > kCachedFloats),
        whole_(lists.n_k() == 1 && !lists.lists[0].in && lists.lists[0].size == lists.n_out &&
               !in_order_ && !out_order_ && !depthwise_),
        single_(kNarrow && lists.n_edges == lists.n_out && !depthwise_ && !buckets_),
        stride_(direct_ ? args.shape.c_in : round_up(args.shape.c_in, kLine)),
        weights_(lists.n_k(), args) {
    if (!args.weight->keep_all()) {
      const int64_t edges =
          std::max<int64_t>(1, lists.n_edges / std::max<int64_t>(1, n_k_ * n_tiles_));
      fill_tiles_ = (kFillEdges + edges - 1) / edges;
    }
    const int64_t rows = std::min(kTaskRows, kTaskFloats / stride_);
    tiles_per_task_ =
        std::clamp<int64_t>(n_tiles_ / (8 * thread_count()), 1, std::max<int64_t>(1, rows / tile_));
  }

  void run() {
    weights_.pack(lists_);
    const int64_t n_tasks = (n_tiles_ + tiles_per_task_ - 1) / tiles_per_task_;
    const int64_t n_panels = static_cast<int64_t>(weights_.panels().size());
    // If there are few tasks, or the weights are too large to be kept packed, a task takes one
    // panel.
    const int64_t split = weights_.too_large() || n_tasks < 4 * thread_count() ? n_panels : 1;
    parallel_for(n_tasks * split, [&](int64_t i) {
      const int64_t t = i / split * tiles_per_task_, p = i % split;
      task(t, std::min(n_tiles_, t + tiles_per_task_), n_panels * p / split,
           n_panels * (p + 1) / split);
    });
  }

 private:
  // First edge of list k on tile t.
  int64_t first_edge(int64_t t, int64_t k) const { return bounds_[t * n_k_ + k]; }

  // Tiles that are summed together, and the window of input positions that they read.
  struct Step {
    int64_t begin, end;
    Window in;
  };

  struct Scratch {
    float* rows;       // the ring
    int64_t capacity;  // of the ring, a power of two
    int64_t lo, hi;    // positions in it
    float* sums;
    float* block;
    int32_t* positions;  // positions of the step, which an identity list reads
    int32_t* list_rows;  // kListRows rows, then 0 .. kListRows - 1
    int32_t* seen;       // edges of the positions of the step
    BucketRoom buckets;
  };

  void task(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    int64_t width = 0, block = 0;
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = weights_.panels()[static_cast<size_t>(p)];
      width = std::max(width, panel.vectors * kLanes);
      if (!weights_.packs_all()) block = std::max(block, weights_.block_floats(panel));
    }
    const int64_t tiles =
        weights_.too_large()
            ? t1 - t0
            : std::clamp(std::max(fill_tiles_, kStepFloats / (width * tile_)), int64_t{1}, t1 - t0);
    std::vector<Step> steps;
    int64_t capacity = kListRows;
    for (int64_t t = t0; t < t1; t += tiles) {
      const int64_t end = std::min(t + tiles, t1);
      const Window in =
          direct_ ? Window{}
                  : input_window(lists_, bounds_ + t * n_k_, bounds_ + end * n_k_, 0, n_k_);
      steps.push_back({t, end, in});
      const int64_t rows =
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(in.hi - in.lo)));
      if (rows * stride_ <= kWindowFloats) capacity = std::max(capacity, rows);
    }
    const int64_t sums_size = tiles * tile_ * width;
    const int64_t ring = direct_ ? 0 : round_up(capacity * stride_ + kLine, kLine);
    const int64_t block_size = round_up(block, kLine);
    Buffer<float> floats(ring + sums_size + block_size +
                         (buckets_ ? kListRows * round_up(c_in_, kLine) : 0));
    Buffer<int32_t> ints(2 * tiles * tile_ + 3 * kListRows);
    float* sums = floats.data() + ring;
    int32_t* list_rows = ints.data() + tiles * tile_;
    Scratch s{.rows = floats.data(),
              .capacity = capacity,
              .lo = 0,
              .hi = 0,
              .sums = sums,
              .block = sums + sums_size,
              .positions = ints.data(),
              .list_rows = list_rows,
              .seen = list_rows + 3 * kListRows,
              .buckets = {.size = kListRows,
                          .rows = sums + sums_size + block_size,
                          .out = list_rows + 2 * kListRows,
                          .iota = list_rows + kListRows}};
    for (int32_t i = 0; i < kListRows; ++i) list_rows[kListRows + i] = i;
    std::fill(sums, sums + sums_size, 0.0f);
    for (const Step& step : steps) sum(step, p0, p1, &s);
  }

  // Input rows in float32, from order[begin] on.
  void copy_input(const int32_t* order, int64_t begin, int64_t end, float* to) const {
    const int64_t more = args_.more_columns, first = args_.shape.c_in - more;
    copy_rows(x_, lists_.n_in, first, order, begin, end, to, stride_);
    if (args_.more)
      copy_rows(static_cast<const T*>(args_.more), lists_.n_in, more, order, begin, end, to + first,
                stride_);
  }

  // Copies what is missing of a window.
  void copy_window(const Window& in, Scratch* s) const {
    const auto [lo, hi] = in;
    if (lo < s->lo || lo > s->hi) s->lo = s->hi = lo;
    for (int64_t p = s->hi, end; p < hi; p = end) {
      end = std::min(hi, (p / s->capacity + 1) * s->capacity);
      copy_input(in_order_, p, end, s->rows + p % s->capacity * stride_);
    }
    s->hi = std::max(s->hi, hi);
    s->lo = std::max(s->lo, s->hi - s->capacity);
  }

  void sum(const Step& step, int64_t p0, int64_t p1, Scratch* s) const {
    const int64_t first = step.begin * tile_;
    const int64_t n = std::min(step.end * tile_, lists_.n_out) - first;
    for (int64_t i = 0; i < n; ++i) s->positions[i] = static_cast<int32_t>(first + i);
    if (whole_) return finish_rows(first, n, p0, p1, s);
    const bool fits = direct_ || step.in.hi - step.in.lo <= s->capacity;
    if (!direct_ && fits) copy_window(step.in, s);
    const bool single = fits && single_ && one_edge_each(step, first, n, s);
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = weights_.panels()[static_cast<size_t>(p)];
      std::optional<Ending<T>> ending;
      if (single) ending.emplace(args_, panel).finish.order = out_order_;
      for (int64_t k = 0; k < n_k_; ++k) {
        const int64_t e = first_edge(step.begin, k), m = first_edge(step.end, k) - e;
        if (m == 0) continue;
        const OffsetList& list = lists_.lists[k];
        const int32_t* in = list.in ? list.in + e : s->positions + (e - first);
        const int32_t* out = list.out ? list.out + e : s->positions + (e - first);
        ListCall call{{(direct_ ? reinterpret_cast<const float*>(x_) : s->rows) + panel.x_column,
                       stride_, direct_ ? INT32_MAX : static_cast<int32_t>(s->capacity - 1)},
                      in,
                      out,
                      m,
                      c_in_,
                      weights_.block(k, panel, s->block),
                      s->sums,
                      static_cast<int32_t>(first),
                      scattered_};
        const ListKernel& kernel = kListKernels[panel.vectors - 1];
        const auto add = depthwise_ ? kernel.add_depthwise : kernel.add;
        if (single) {
          kFinishKernels<T>[panel.vectors - 1].listed(call, ending->finish);
        } else if (fits && buckets_) {
          const float* x_end =
              direct_ ? reinterpret_cast<const float*>(x_) + lists_.n_in * args_.shape.c_in
                      : s->rows + s->capacity * stride_ + kLine;
          add_buckets(add, call, x_end, direct_, s->buckets);
        } else if (fits) {
          add(call);
        } else {
          add_copied(add, call, panel, s);
        }
      }
      if (!single) finish_sums<T>(args_, panel, out_order_, first, n, s->sums);
    }
  }

  // Whether each of the n output positions of a step has exactly one edge, as in 2x2x2 up.
  bool one_edge_each(const Step& step, int64_t first, int64_t n, Scratch* s) const {
    int64_t edges = 0;
    for (int64_t k = 0; k < n_k_; ++k) edges += first_edge(step.end, k) - first_edge(step.begin, k);
    if (edges != n) return false;
    std::fill(s->seen, s->seen + n, 0);
    for (int64_t k = 0; k < n_k_; ++k)
      for (int64_t e = first_edge(step.begin, k); e < first_edge(step.end, k); ++e)
        if (s->seen[lists_.lists[k].out_at(e) - first]++) return false;
    return true;
  }

  // Every row with itself.
  void finish_rows(int64_t first, int64_t n, int64_t p0, int64_t p1, Scratch* s) const {
    // Narrow vectors have many panels, and the first of them would wait for all rows. So each asks
    // for its share of the rows that follow. AVX2, C = 64, shares of sgemm in turns: lidar 0.77 ->
    // 0.85, room 0.75 -> 0.82.
    const bool ahead = kNarrow && scattered_ && p1 - p0 >= 4;
    const int64_t most = ahead ? kWholeRows : direct_ ? n : s->capacity;
    if (n > most) {
      finish_rows(first, most, p0, p1, s);
      return finish_rows(first + most, n - most, p0, p1, s);
    }
    if (!direct_) copy_input(nullptr, first, first + n, s->rows);
    const float* x =
        direct_ ? reinterpret_cast<const float*>(x_) + first * args_.shape.c_in : s->rows;
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = weights_.panels()[static_cast<size_t>(p)];
      const Ending<T> ending(args_, panel);
      ListCall call{{x + panel.x_column, stride_, INT32_MAX},
                    nullptr,
                    nullptr,
                    n,
                    c_in_,
                    weights_.block(0, panel, s->block),
                    nullptr,
                    static_cast<int32_t>(first),
                    false};
      if (ahead) {
        const int64_t begin = args_.shape.c_in * (p - p0) / (p1 - p0);
        call.next = x + n * stride_ + begin;
        call.next_columns = args_.shape.c_in * (p - p0 + 1) / (p1 - p0) - begin;
      }
      kFinishKernels<T>[panel.vectors - 1].same(call, ending.finish);
    }
  }

  // Without a window: the rows of the edges themselves, a few at a time.
  void add_copied(void (*add)(const ListCall&), ListCall& call, const Panel& panel,
                  Scratch* s) const {
    // Only the columns that the panel reads; with one channel per group these are the panel's own.
    const int64_t columns = depthwise_ ? panel.columns : c_in_, stride = round_up(columns, kLine);
    call.rows = {s->rows, stride, INT32_MAX};
    const int64_t n = call.n;
    const int32_t* in = call.in;
    int32_t* rows = s->list_rows;
    s->lo = s->hi = 0;
    call.in = rows + kListRows;
    for (int64_t e = 0; e < n; e += call.n) {
      call.n = std::min(kListRows, n - e);
      for (int64_t i = 0; i < call.n; ++i) rows[i] = in_order_ ? in_order_[in[e + i]] : in[e + i];
      if (args_.more)
        copy_input(rows, 0, call.n, s->rows);
      else
        copy_columns<T>({x_, lists_.n_in, args_.shape.c_in, panel.x_column, columns, rows}, 0,
                        call.n, s->rows, stride);
      add(call);
      call.out += call.n;
    }
  }

  const RelationLists& lists_;
  const int32_t* bounds_;
  int64_t n_k_, tile_, n_tiles_;
  const ConvArgs& args_;
  const T* x_;
  int64_t c_in_;  // of a group
  bool depthwise_;
  bool buckets_;
  const int32_t* in_order_;
  const int32_t* out_order_;
  bool direct_;     // rows are read where they are
  bool scattered_;  // those rows do not all stay in the cache
  bool whole_;      // the one list holds every row with itself
  bool single_;     // output rows may have one edge each
  int64_t stride_;  // of the rows that are read
  ConvWeights weights_;
  int64_t tiles_per_task_ = 1;
  int64_t fill_tiles_ = 1;  // tiles between two fillings of a block
};

void run_conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  visit_float_type(args.shape.storage,
                   [&](auto zero) { Conv<decltype(zero)>(lists, bounds, args).run(); });
}

std::shared_ptr<const WeightPanels> run_pack(const WeightSource& weight, int64_t n_k,
                                             const ConvShape& shape) {
  const ConvArgs args{.shape = shape, .weight = &weight};
  const ConvWeights weights(n_k, args);
  if (!weights.packs_all()) return nullptr;
  return std::make_shared<const WeightPanels>(
      WeightPanels{HWY_TARGET, n_k, shape, weights.packed()});
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_conv);
HWY_EXPORT(run_pack);

void conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  check_call("conv", lists, bounds, args.shape);
  HWY_DYNAMIC_DISPATCH(run_conv)(lists, bounds, args);
}

std::shared_ptr<const WeightPanels> pack_weight(const WeightSource& weight, int64_t n_k,
                                                const ConvShape& shape) {
  return HWY_DYNAMIC_DISPATCH(run_pack)(weight, n_k, shape);
}

}  // namespace lattice::cpu
#endif
