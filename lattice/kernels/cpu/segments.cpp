#include "lattice/kernels/cpu/segments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lattice/kernels/cpu/memory.h"
#include "lattice/kernels/cpu/targets.h"
#include "lattice/kernels/cpu/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/segments.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/block-inl.h"

#ifndef LATTICE_KERNELS_CPU_SEGMENTS_CPP
#define LATTICE_KERNELS_CPU_SEGMENTS_CPP
namespace lattice::cpu {
namespace {

// One reduction with everything that it reads. Matching: a is compared with b; the values are x, or, sharing, g.
struct Task {
  const Segments& s;
  const RowArray& x;
  Reduction reduction;
  const void* a;
  const void* b;
  const void* g;
  void* out;
};

int64_t row_of(const Segments& s, int64_t e) { return s.rows ? s.rows[e] : e; }
int64_t out_of(const Segments& s, int64_t i) { return s.out_rows ? s.out_rows[i] : i; }

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// What an entry adds to the value of its segment.
struct Sum {
  static HWY_INLINE Vec start(Floats d) { return hn::Zero(d); }
  static HWY_INLINE Vec add(Vec sum, Vec v) { return hn::Add(sum, v); }
};
struct Max {
  static HWY_INLINE Vec start(Floats d) { return hn::Set(d, -INFINITY); }
  static HWY_INLINE Vec add(Vec most, Vec v) {
    return hn::IfThenElse(hn::Or(hn::Gt(v, most), hn::IsNaN(v)), v, most);  // a NaN stays: nothing is greater
  }
};

struct Min {
  static HWY_INLINE Vec start(Floats d) { return hn::Set(d, INFINITY); }
  static HWY_INLINE Vec add(Vec least, Vec v) {
    return hn::IfThenElse(hn::Or(hn::Lt(v, least), hn::IsNaN(v)), v, least);
  }
};

// Also rows in memory order: the machine's own prefetcher stops at each page.
template <typename T>
HWY_INLINE void ask_for(const Segments& s, const T* x, int64_t channels, int64_t e, int64_t last) {
  constexpr int64_t kAhead = 16;
  if (e + kAhead < last) prefetch_row(x + row_of(s, e + kAhead) * channels, channels);
}

// N vectors of columns from c of entries [e0, e1), written to out + c; `last` is the end of all entries.
template <class Op, int N, typename T, typename O>
HWY_INLINE void reduce_columns(const Task& t, int64_t e0, int64_t e1, int64_t last, int64_t c, float divisor, O* out) {
  const Floats d;
  const Segments& s = t.s;
  const int64_t channels = t.x.channels;
  const T* x = static_cast<const T*>(t.x.x);
  const T* end = x + t.x.rows * channels;
  Vec sum[N];
  unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = Op::start(d); });
  for (int64_t e = e0; e < e1; ++e) {
    if (c == 0) ask_for(s, x, channels, e, last);
    const T* row = x + row_of(s, e) * channels + c;
    const Vec w = hn::Set(d, s.weights ? s.weights[e] : 1.0f);
    unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA {
      Vec v;
      if constexpr (N == 1)
        v = load_until(d, row, end);
      else
        v = load(d, row + i * kLanes);
      if (s.weights) v = hn::Mul(v, w);
      sum[i] = Op::add(sum[i], v);
    });
  }
  if (divisor != 1.0f) unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Div(sum[i], hn::Set(d, divisor)); });
  unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA { store(sum[i], d, out + c + i * kLanes, channels - c - i * kLanes); });
}

template <class Op, typename T, typename O>
HWY_INLINE void reduce_entries(const Task& t, int64_t e0, int64_t e1, int64_t last, float divisor, O* out) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= t.x.channels; c += 4 * kLanes) reduce_columns<Op, 4, T>(t, e0, e1, last, c, divisor, out);
  for (; c < t.x.channels; c += kLanes) reduce_columns<Op, 1, T>(t, e0, e1, last, c, divisor, out);
}

float divisor_of(const Task& t, int64_t e0, int64_t e1) {
  if (t.reduction != Reduction::mean) return 1.0f;
  if (!t.s.weights) return static_cast<float>(e1 - e0);
  float sum = 0;
  for (int64_t e = e0; e < e1; ++e) sum += t.s.weights[e];
  return sum;
}

// Segments [begin, end), those of more than kLongSegment entries left out.
template <class Op, typename T>
HWY_NOINLINE void reduce_run(const Task& t, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = 4;
  const Segments& s = t.s;
  const int64_t channels = t.x.channels, last = s.offsets[s.n];
  T* out = static_cast<T*>(t.out);
  for (int64_t i = begin; i < end; ++i) {
    if (s.out_rows && i + kAhead < end) prefetch_row(out + s.out_rows[i + kAhead] * channels, channels);
    const int64_t e0 = s.offsets[i], e1 = s.offsets[i + 1];
    T* row = out + out_of(s, i) * channels;
    if (e0 == e1)
      std::fill(row, row + channels, narrow<T>(0.0f));
    else if (e1 - e0 <= kLongSegment)
      reduce_entries<Op, T>(t, e0, e1, last, divisor_of(t, e0, e1), row);
  }
}

// N vectors of columns from c of segment i. kShare: g over the number of matches, otherwise the sum of the rows of x that match.
template <bool kShare, int N, typename T>
HWY_INLINE void match_columns(const Task& t, int64_t i, int64_t c) {
  const Floats d;
  const Segments& s = t.s;
  const int64_t channels = t.x.channels, last = s.offsets[s.n], row = out_of(s, i) * channels;
  const T *x = static_cast<const T*>(t.x.x), *b = static_cast<const T*>(t.b);
  // Whole vectors are read without asking where the array ends.
  const auto read = [&](const T* array, int64_t at, int64_t values) LATTICE_INLINE_LAMBDA {
    return N == 1 ? load_until(d, array + at, array + values) : load(d, array + at);
  };
  const T* a = static_cast<const T*>(t.a) + row;
  Vec wanted[N], sum[N];
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
    wanted[v] = read(a, c + v * kLanes, channels);
    sum[v] = hn::Zero(d);
  });
  for (int64_t e = s.offsets[i]; e < s.offsets[i + 1]; ++e) {
    if (c == 0) {
      ask_for(s, b, channels, e, last);
      if (!kShare) ask_for(s, x, channels, e, last);
    }
    const int64_t at = row_of(s, e) * channels + c;
    unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
      const auto same = hn::Eq(read(b, at + v * kLanes, t.x.rows * channels), wanted[v]);
      const Vec value = kShare ? hn::Set(d, 1.0f) : read(x, at + v * kLanes, t.x.rows * channels);
      sum[v] = hn::Add(sum[v], hn::IfThenElseZero(same, value));
    });
  }
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
    if (kShare) {
      const Vec g = read(static_cast<const T*>(t.g) + row, c + v * kLanes, channels);
      const Vec share = hn::Div(g, hn::Max(sum[v], hn::Set(d, 1.0f)));
      sum[v] = hn::IfThenElseZero(hn::Gt(sum[v], hn::Zero(d)), share);
    }
    store(sum[v], d, static_cast<T*>(t.out) + row + c + v * kLanes, channels - c - v * kLanes);
  });
}

template <bool kShare, typename T>
HWY_NOINLINE void match_run(const Task& t, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    int64_t c = 0;
    for (; c + 4 * kLanes <= t.x.channels; c += 4 * kLanes) match_columns<kShare, 4, T>(t, i, c);
    for (; c < t.x.channels; c += kLanes) match_columns<kShare, 1, T>(t, i, c);
  }
}

void run_segments(const Task& t, int64_t begin, int64_t end) {
  visit_storage(t.x.storage, [&]<typename T>(T) {
    if (t.g)
      match_run<true, T>(t, begin, end);
    else if (t.a)
      match_run<false, T>(t, begin, end);
    else if (t.reduction == Reduction::max)
      reduce_run<Max, T>(t, begin, end);
    else if (t.reduction == Reduction::min)
      reduce_run<Min, T>(t, begin, end);
    else
      reduce_run<Sum, T>(t, begin, end);
  });
}

// One piece of a long segment as float32 values.
void run_piece(const Task& t, int64_t e0, int64_t e1, float* out) {
  visit_storage(t.x.storage, [&]<typename T>(T) {
    if (t.reduction == Reduction::max)
      reduce_entries<Max, T>(t, e0, e1, e1, 1.0f, out);
    else if (t.reduction == Reduction::min)
      reduce_entries<Min, T>(t, e0, e1, e1, 1.0f, out);
    else
      reduce_entries<Sum, T>(t, e0, e1, e1, 1.0f, out);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {

HWY_EXPORT(run_segments);
HWY_EXPORT(run_piece);

// Runs body(begin, end) on runs of segments of about equal numbers of entries and segments.
template <typename F>
void each_run(const Segments& s, int64_t channels, const F& body) {
  const int64_t grain = std::max<int64_t>(64, (int64_t{1} << 17) / std::max<int64_t>(channels, 1));
  const auto cost = [&](int64_t i) { return int64_t{s.offsets[i]} - s.offsets[0] + i; };
  const int64_t runs = (cost(s.n) + grain - 1) / grain;
  const auto first = [&](int64_t run) {  // the first segment whose cost is not below run * grain
    int64_t lo = 0, hi = s.n;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      cost(mid) < run* grain ? lo = mid + 1 : hi = mid;
    }
    return lo;
  };
  parallel_for(runs, [&](int64_t r) {
    const int64_t begin = first(r), end = r + 1 == runs ? s.n : first(r + 1);
    if (begin < end) body(begin, end);
  });
}

void reduce_long(const Task& t, int64_t i) {
  const int64_t e0 = t.s.offsets[i], n = t.s.offsets[i + 1] - e0, channels = t.x.channels;
  const int64_t pieces = (n + kSegmentPiece - 1) / kSegmentPiece;
  Buffer<float> parts(pieces * channels);
  parallel_for(pieces, [&](int64_t p) {
    HWY_DYNAMIC_DISPATCH(run_piece)
    (t, e0 + p * kSegmentPiece, e0 + std::min(n, (p + 1) * kSegmentPiece), parts.data() + p * channels);
  });
  double divisor = 1;
  if (t.reduction == Reduction::mean) {
    divisor = static_cast<double>(n);
    if (t.s.weights) {
      divisor = 0;
      for (int64_t e = e0; e < e0 + n; ++e) divisor += double{t.s.weights[e]};
    }
  }
  visit_storage(t.x.storage, [&]<typename T>(T) {
    T* row = static_cast<T*>(t.out) + out_of(t.s, i) * channels;
    for (int64_t c = 0; c < channels; ++c) {
      double value = double{parts[c]};
      for (int64_t p = 1; p < pieces; ++p) {
        const double v = double{parts[p * channels + c]};
        if (t.reduction != Reduction::max && t.reduction != Reduction::min)
          value += v;
        else if ((t.reduction == Reduction::max ? v > value : v < value) || std::isnan(v))
          value = v;
      }
      row[c] = narrow<T>(static_cast<float>(value / divisor));
    }
  });
}

void run(const Task& t) {
  if (t.s.n == 0 || t.x.channels == 0) return;
  each_run(t.s, t.x.channels, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(run_segments)(t, begin, end); });
}

}  // namespace

void reduce_segments(const Segments& segments, const RowArray& x, Reduction reduction, void* out) {
  const Task task{segments, x, reduction, nullptr, nullptr, nullptr, out};
  run(task);
  if (segments.n == 0 || segments.offsets[segments.n] - segments.offsets[0] <= kLongSegment) return;
  for (int64_t i = 0; i < segments.n; ++i)
    if (segments.offsets[i + 1] - segments.offsets[i] > kLongSegment) reduce_long(task, i);
}

void match_segments(const Segments& segments, const void* a, const void* b, const RowArray& x, void* out) {
  run({segments, x, Reduction::sum, a, b, nullptr, out});
}

void share_segments(const Segments& segments, const void* a, const RowArray& b, const void* g, void* out) {
  run({segments, b, Reduction::sum, a, b.x, g, out});
}

void argmax_segments(const Segments& s, const RowArray& x, int32_t* out, Reduction kind) {
  const int64_t channels = x.channels;
  const float sign = kind == Reduction::min ? -1.0f : 1.0f;
  if (s.n == 0 || channels == 0) return;
  visit_storage(x.storage, [&]<typename T>(T) {
    each_run(s, channels, [&](int64_t begin, int64_t end) {
      Buffer<float> most(channels);
      for (int64_t i = begin; i < end; ++i) {
        int32_t* best = out + out_of(s, i) * channels;
        std::fill(best, best + channels, -1);
        for (int64_t e = s.offsets[i]; e < s.offsets[i + 1]; ++e) {
          const int32_t r = static_cast<int32_t>(row_of(s, e));
          const T* row = static_cast<const T*>(x.x) + int64_t{r} * channels;
          for (int64_t c = 0; c < channels; ++c) {
            const float v = sign * widen(row[c]);
            const bool same = v == most[c] || (std::isnan(v) && std::isnan(most[c]));
            if (best[c] < 0 || v > most[c] || (std::isnan(v) && !std::isnan(most[c])) || (same && r < best[c])) {
              most[c] = v;
              best[c] = r;
            }
          }
        }
      }
    });
  });
}

void gather_rows(const RowArray& x, const int32_t* rows, int64_t n, float fill, void* out) {
  constexpr int64_t kAhead = 16;
  const int64_t grain = std::max<int64_t>(64, (int64_t{1} << 17) / std::max<int64_t>(x.channels, 1));
  visit_storage(x.storage, [&]<typename T>(T) {
    const T* from = static_cast<const T*>(x.x);
    const T value = narrow<T>(fill);
    parallel_range(n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        if (j + kAhead < end && rows[j + kAhead] >= 0) {
          const T* next = from + rows[j + kAhead] * x.channels;
          for (int64_t c = 0; c < x.channels; c += static_cast<int64_t>(64 / sizeof(T)))
            __builtin_prefetch(next + c, 0, 2);
        }
        T* to = static_cast<T*>(out) + j * x.channels;
        if (rows[j] >= 0)
          std::memcpy(to, from + rows[j] * x.channels, static_cast<size_t>(x.channels) * sizeof(T));
        else
          std::fill(to, to + x.channels, value);
      }
    });
  });
}

}  // namespace lattice::cpu
#endif
