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
// An output row belongs to one task, and no size chosen here changes the order of summation. Where
// many edges of an offset share an output row, as on points, their input rows are added first and
// multiplied once.
//
// Tried without gain, with rows shuffled in memory:
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

#ifndef LATTICE_KERNELS_CPU_CONV_CPP
#define LATTICE_KERNELS_CPU_CONV_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kPackedFloats = int64_t{64} << 18;  // weights kept for the whole call: 64 MiB
constexpr int64_t kWindowFloats = int64_t{1} << 20;   // ring: at most 4 MiB
constexpr int64_t kTaskFloats = int64_t{1} << 19;     // aim of a task: input rows of 2 MiB
constexpr int64_t kTaskRows = 16384;
constexpr int64_t kStepFloats = int64_t{1} << 13;    // sums of a step and panel: 32 KiB
constexpr int64_t kCachedFloats = int64_t{3} << 16;  // rows that need not be asked for: 768 KiB
constexpr int64_t kListRows = 256;                   // rows copied at a time without a window
constexpr int64_t kWholeRows = 192;  // multiplied with all panels before the next rows come
constexpr int64_t kFillEdges = 256;  // that share a block which is made as it is used

// One channel on both sides of each group.
inline bool is_depthwise(int64_t c_in, int64_t c_out, int64_t groups) {
  return c_in == groups && c_out == groups && groups > 1;
}

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
        depthwise_(is_depthwise(args.c_in, args.c_out, args.groups)),
        buckets_(args.add_shared_first && !depthwise_),
        in_order_(lists.in_order ? lists.in_order->data() : nullptr),
        out_order_(lists.out_order ? lists.out_order->data() : nullptr),
        direct_(std::is_same_v<T, float> && !in_order_ && !depthwise_ && !args.more),
        scattered_(direct_ && lists.n_in * args.c_in > kCachedFloats),
        whole_(lists.n_k() == 1 && !lists.lists[0].in && lists.lists[0].size == lists.n_out &&
               !in_order_ && !out_order_ && !depthwise_),
        single_(kNarrow && lists.n_edges == lists.n_out && !depthwise_ && !buckets_),
        stride_(direct_ ? args.c_in : round_up(args.c_in, kLine)) {
    plan();
  }

  void run() {
    if (keep_weights_) pack();
    const int64_t n_tasks = (n_tiles_ + tiles_per_task_ - 1) / tiles_per_task_;
    const int64_t n_panels = static_cast<int64_t>(panels_.size());
    // Few tasks, or more weights than are kept: a task takes one panel.
    const int64_t split = too_large_ || n_tasks < 4 * thread_count() ? n_panels : 1;
    parallel_for(n_tasks * split, [&](int64_t i) {
      const int64_t t = i / split * tiles_per_task_, p = i % split;
      task(t, std::min(n_tiles_, t + tiles_per_task_), n_panels * p / split,
           n_panels * (p + 1) / split);
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
        panels_.push_back({column, std::min(end, c_out) - begin, (end - begin) / kLanes,
                           depthwise_ ? column : g * c_in_, packed_});
        packed_ += packed_size(panels_.back());
      }
    }
    keep_weights_ = args_.weight->keep_all() && n_k_ * packed_ <= kPackedFloats;
    too_large_ = args_.weight->keep_all() && !keep_weights_;
    if (!args_.weight->keep_all()) {
      const int64_t edges =
          std::max<int64_t>(1, lists_.n_edges / std::max<int64_t>(1, n_k_ * n_tiles_));
      fill_tiles_ = (kFillEdges + edges - 1) / edges;
    }
    const int64_t rows = std::min(kTaskRows, kTaskFloats / stride_);
    tiles_per_task_ =
        std::clamp<int64_t>(n_tiles_ / (8 * thread_count()), 1, std::max<int64_t>(1, rows / tile_));
  }

  bool paired(const Panel& p) const { return !depthwise_ && kListKernels[p.vectors - 1].paired; }
  int64_t packed_size(const Panel& p) const {
    return round_up(c_in_, paired(p) ? 2 : 1) * p.vectors * kLanes;
  }

  // The block (k, panel) as the kernel reads it: rows of columns; paired, rows c and c + 1
  // interleaved.
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

  // Packs the weights, all of them or those that have edges, unless they are kept from other calls.
  void pack() {
    if (auto origin = args_.weight->origin(n_k_, args_.groups)) {
      origin->layout.insert(origin->layout.end(), {HWY_TARGET, args_.c_in, args_.c_out});
      kept_ = kept_weights(*origin, n_k_ * packed_, [&](float* to) { pack_into(to, true); });
    }
    if (kept_) {
      weights_ = kept_->data();
    } else {
      own_weights_ = Buffer<float>(n_k_ * packed_);
      pack_into(own_weights_.data(), false);
      weights_ = own_weights_.data();
    }
  }
  void pack_into(float* to, bool all) const {
    const auto n_panels = static_cast<int64_t>(panels_.size());
    parallel_for(n_k_ * n_panels, [&](int64_t i) {
      const int64_t k = i / n_panels;
      const Panel& p = panels_[static_cast<size_t>(i % n_panels)];
      if (all || lists_.lists[k].size > 0) fill(k, p, to + k * packed_ + p.packed);
    });
  }

  // First edge of list k on tile t.
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
    return hi < 0 ? std::pair<int64_t, int64_t>{0, 0}
                  : std::pair<int64_t, int64_t>{lo, int64_t{hi} + 1};
  }

  // Tiles that are summed together, and the window of input positions that they read.
  struct Step {
    int64_t begin, end;
    int64_t lo, hi;
  };

  struct Scratch {
    float* rows;       // the ring
    int64_t capacity;  // of the ring, a power of two
    int64_t lo, hi;    // positions in it
    float* sums;
    float* block;
    float* bucket_rows;
    int32_t* positions;   // of the step: what an identity list reads
    int32_t* list_rows;   // kListRows rows, then 0 .. kListRows - 1
    int32_t* bucket_out;  // kListRows output positions
    int32_t* seen;        // edges of the positions of the step
  };

  void task(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    int64_t width = 0, block = 0;
    for (int64_t p = p0; p < p1; ++p) {
      width = std::max(width, panels_[p].vectors * kLanes);
      block = std::max(block, packed_size(panels_[p]));
    }
    const int64_t tiles =
        too_large_
            ? t1 - t0
            : std::clamp(std::max(fill_tiles_, kStepFloats / (width * tile_)), int64_t{1}, t1 - t0);
    std::vector<Step> steps;
    int64_t capacity = kListRows;
    for (int64_t t = t0; t < t1; t += tiles) {
      const int64_t end = std::min(t + tiles, t1);
      const auto [lo, hi] = direct_ ? std::pair<int64_t, int64_t>{0, 0} : window(t, end);
      steps.push_back({t, end, lo, hi});
      const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(hi - lo)));
      if (rows * stride_ <= kWindowFloats) capacity = std::max(capacity, rows);
    }
    const int64_t sums_size = tiles * tile_ * width;
    const int64_t ring = direct_ ? 0 : round_up(capacity * stride_ + kLine, kLine);
    const int64_t block_size = round_up(keep_weights_ ? 0 : block, kLine);
    Buffer<float> floats(ring + sums_size + block_size +
                         (buckets_ ? kListRows * round_up(c_in_, kLine) : 0));
    Buffer<int32_t> ints(2 * tiles * tile_ + 3 * kListRows);
    float* sums = floats.data() + ring;
    int32_t* list_rows = ints.data() + tiles * tile_;
    Scratch s{floats.data(),
              capacity,
              0,
              0,
              sums,
              sums + sums_size,
              sums + sums_size + block_size,
              ints.data(),
              list_rows,
              list_rows + 2 * kListRows,
              list_rows + 3 * kListRows};
    for (int32_t i = 0; i < kListRows; ++i) list_rows[kListRows + i] = i;
    std::fill(sums, sums + sums_size, 0.0f);
    for (const Step& step : steps) sum(step, p0, p1, &s);
  }

  // Input rows in float32, from order[begin] on.
  void copy_input(const int32_t* order, int64_t begin, int64_t end, float* to) const {
    const int64_t more = args_.more_columns, first = args_.c_in - more;
    copy_rows(x_, lists_.n_in, first, order, begin, end, to, stride_);
    if (args_.more)
      copy_rows(static_cast<const T*>(args_.more), lists_.n_in, more, order, begin, end, to + first,
                stride_);
  }

  // Copies what is missing of the window [lo, hi).
  void copy_window(int64_t lo, int64_t hi, Scratch* s) const {
    if (lo < s->lo || lo > s->hi) s->lo = s->hi = lo;
    for (int64_t p = s->hi, end; p < hi; p = end) {
      end = std::min(hi, (p / s->capacity + 1) * s->capacity);
      copy_input(in_order_, p, end, s->rows + p % s->capacity * stride_);
    }
    s->hi = std::max(s->hi, hi);
    s->lo = std::max(s->lo, s->hi - s->capacity);
  }

  // Packed weights of one offset and panel.
  const float* block(int64_t k, const Panel& p, Scratch* s) const {
    if (keep_weights_) return weights_ + k * packed_ + p.packed;
    fill(k, p, s->block);
    return s->block;
  }

  void sum(const Step& step, int64_t p0, int64_t p1, Scratch* s) const {
    const int64_t first = step.begin * tile_;
    const int64_t n = std::min(step.end * tile_, lists_.n_out) - first;
    for (int64_t i = 0; i < n; ++i) s->positions[i] = static_cast<int32_t>(first + i);
    if (whole_) return finish_rows(first, n, p0, p1, s);
    const bool fits = direct_ || step.hi - step.lo <= s->capacity;
    if (!direct_ && fits) copy_window(step.lo, step.hi, s);
    const bool single = fits && single_ && one_edge_each(step, first, n, s);
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = panels_[p];
      const ListKernel& kernel = kListKernels[panel.vectors - 1];
      const auto add = depthwise_ ? kernel.add_depthwise : kernel.add;
      std::optional<Ending> ending;
      if (single) prepare(panel, &ending.emplace());
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
                      block(k, panel, s),
                      s->sums,
                      static_cast<int32_t>(first),
                      scattered_};
        if (single) {
          kFinishKernels<T>[panel.vectors - 1].listed(call, ending->finish);
        } else if (fits && buckets_) {
          add_buckets(add, call, s);
        } else if (fits) {
          add(call);
        } else {
          add_copied(add, call, panel, s);
        }
      }
      if (!single) finish(panel, first, n, s->sums);
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

  // The constants of a panel, and what becomes of its sums.
  struct Ending {
    HWY_ALIGN float values[4][kMaxVectors * kLanes] = {};
    Finish<T> finish;
  };
  void prepare(const Panel& p, Ending* ending) const {
    const NormAfter& norm = args_.norm;
    for (int64_t c = 0; c < p.columns; ++c) {
      if (args_.bias) ending->values[0][c] = widen(static_cast<const T*>(args_.bias)[p.column + c]);
      if (!norm.mean) continue;
      ending->values[1][c] = norm.mean[p.column + c];
      ending->values[2][c] = norm.scale[p.column + c];
      ending->values[3][c] = norm.shift[p.column + c];
    }
    const T* residual = static_cast<const T*>(norm.residual);
    ending->finish = {ending->values[0],
                      norm.mean ? ending->values[1] : nullptr,
                      ending->values[2],
                      ending->values[3],
                      residual ? residual + p.column : nullptr,
                      norm.relu,
                      y_ + p.column,
                      args_.c_out,
                      p.columns,
                      out_order_};
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
    const float* x = direct_ ? reinterpret_cast<const float*>(x_) + first * args_.c_in : s->rows;
    for (int64_t p = p0; p < p1; ++p) {
      const Panel& panel = panels_[p];
      Ending ending;
      prepare(panel, &ending);
      ListCall call{{x + panel.x_column, stride_, INT32_MAX},
                    nullptr,
                    nullptr,
                    n,
                    c_in_,
                    block(0, panel, s),
                    nullptr,
                    static_cast<int32_t>(first),
                    false};
      if (ahead) {
        const int64_t begin = args_.c_in * (p - p0) / (p1 - p0);
        call.next = x + n * stride_ + begin;
        call.next_columns = args_.c_in * (p - p0 + 1) / (p1 - p0) - begin;
      }
      kFinishKernels<T>[panel.vectors - 1].same(call, ending.finish);
    }
  }

  // Edges with one output position follow each other: their rows are added, and the sums are the
  // rows that are multiplied.
  void add_buckets(void (*add)(const ListCall&), const ListCall& given, Scratch* s) const {
    constexpr int64_t kAhead = 16;
    const Floats d;
    const int64_t stride = round_up(c_in_, kLine);
    const float* x_end = direct_ ? reinterpret_cast<const float*>(x_) + lists_.n_in * args_.c_in
                                 : s->rows + s->capacity * stride_ + kLine;
    const int32_t *in = given.in, *out = given.out;
    ListCall call = given;
    call.rows = {s->bucket_rows, stride, INT32_MAX};
    call.in = s->list_rows + kListRows;
    call.out = s->bucket_out;
    call.scattered = false;
    for (int64_t e = 0; e < given.n;) {
      int64_t n = 0;
      for (int64_t end; e < given.n && n < kListRows; e = end, ++n) {
        for (end = e + 1; end < given.n && out[end] == out[e];) ++end;
        if (direct_)
          for (int64_t i = e; i < end; ++i)
            if (i + kAhead < given.n)
              prefetch_row(given.rows.x + given.rows.at(in[i + kAhead]), c_in_);
        s->bucket_out[n] = out[e];
        float* HWY_RESTRICT to = s->bucket_rows + n * stride;
        int64_t c = 0;
        for (; c + 4 * kLanes <= c_in_; c += 4 * kLanes)
          sum_bucket<4>(given.rows, in + e, end - e, c, to);
        for (; c + 2 * kLanes <= c_in_; c += 2 * kLanes)
          sum_bucket<2>(given.rows, in + e, end - e, c, to);
        for (; c + kLanes <= c_in_; c += kLanes) sum_bucket<1>(given.rows, in + e, end - e, c, to);
        if (c < c_in_) {
          Vec sum = load_until(d, given.rows.x + given.rows.at(in[e]) + c, x_end);
          for (int64_t i = e + 1; i < end; ++i)
            sum = hn::Add(sum, load_until(d, given.rows.x + given.rows.at(in[i]) + c, x_end));
          hn::Store(sum, d, to + c);
        }
      }
      call.n = n;
      add(call);
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
        copy_columns<T>({x_, lists_.n_in, args_.c_in, panel.x_column, columns, rows}, 0, call.n,
                        s->rows, stride);
      add(call);
      call.out += call.n;
    }
  }

  // Finishes the rows and writes them; leaves the sums at 0.
  void finish(const Panel& p, int64_t first, int64_t n, float* HWY_RESTRICT sums) const {
    Ending ending;
    prepare(p, &ending);
    const Finish<T> finish = ending.finish;
    const Floats d;
    // Without a norm the loop has no branches (1 to 3 % of conv with AVX-512).
    if (finish.plain()) {
      const float* HWY_RESTRICT bias = finish.bias;
      T* y = finish.y;
      const int64_t columns = p.columns;
      each_row(p, first, n, sums, finish, [&](Vec v, int64_t at, int64_t c) HWY_ATTR {
        store(hn::Add(v, hn::Load(d, bias + c)), d, y + at + c, columns - c);
      });
    } else {
      each_row(p, first, n, sums, finish,
               [&](Vec v, int64_t at, int64_t c) HWY_ATTR { finish.put(v, at, c); });
    }
  }
  template <class Put>
  HWY_INLINE void each_row(const Panel& p, int64_t first, int64_t n, float* HWY_RESTRICT sums,
                           const Finish<T>& finish, Put put) const {
    constexpr int64_t kAhead = 8;
    const Floats d;
    const int64_t width = p.vectors * kLanes, pitch = args_.c_out, columns = p.columns;
    const int32_t* order = out_order_;
    for (int64_t r = first; r < first + n; ++r, sums += width) {
      if (order && r + kAhead < first + n) {
        const int64_t ahead = order[r + kAhead] * pitch;
        prefetch_row(finish.y + ahead, columns);
        if (finish.residual) prefetch_row(finish.residual + ahead, columns);
      }
      const int64_t at = (order ? order[r] : r) * pitch;
      for (int64_t c = 0; c < width; c += kLanes) {
        put(hn::Load(d, sums + c), at, c);
        hn::Store(hn::Zero(d), d, sums + c);
      }
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
  bool buckets_;
  const int32_t* in_order_;
  const int32_t* out_order_;
  bool direct_;     // rows are read where they are
  bool scattered_;  // and do not all stay in the cache
  bool whole_;      // the one list holds every row with itself
  bool single_;     // output rows may have one edge each
  int64_t stride_;  // of the rows that are read
  std::vector<Panel> panels_;
  int64_t packed_ = 0;  // floats of one offset's weights
  int64_t tiles_per_task_ = 1;
  bool keep_weights_ = true;
  bool too_large_ = false;          // weights in memory that are not kept
  int64_t fill_tiles_ = 1;          // tiles between two fillings of a block
  const float* weights_ = nullptr;  // kept, or own
  KeptWeights kept_ = nullptr;
  Buffer<float> own_weights_;
};

void run_conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  visit_float_type(args.storage,
                   [&](auto zero) { Conv<decltype(zero)>(lists, bounds, args).run(); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_conv);

// A bucket costs c_in additions per edge and saves c_in * c_out multiplications for each edge but
// its first. Measured on dense scans: from 1.25 edges per bucket on with 64 channels, 2 with 32;
// with 16 not at 4.4 (0.9 times as fast).
bool conv_buckets_pay(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups) {
  if (is_depthwise(c_in, c_out, groups) || lists.n_buckets == 0) return false;
  const int64_t columns = c_out / groups;
  return lists.n_edges * 4 >= lists.n_buckets * (columns >= 64 ? 5 : columns >= 32 ? 8 : 20);
}

int64_t conv_tile(const RelationLists& lists) {
  constexpr int64_t kTile = 256;
  // The bounds of many offsets should not outweigh the lists.
  const int64_t tiles = std::max<int64_t>(1, lists.n_edges / std::max<int64_t>(1, lists.n_k()));
  return std::clamp<int64_t>((lists.n_out + tiles - 1) / tiles, kTile, 8 * kTile);
}

void conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  check_call("conv", lists, bounds, args.c_in, args.c_out, args.groups);
  HWY_DYNAMIC_DISPATCH(run_conv)(lists, bounds, args);
}

}  // namespace lattice::cpu
#endif
