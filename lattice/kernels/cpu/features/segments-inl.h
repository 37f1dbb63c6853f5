// One run of segments, in vector registers; for segments.cpp, once per Highway target.
#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/block-inl.h"
#include "lattice/kernels/cpu/features/segments.h"

#ifndef LATTICE_KERNELS_CPU_SEGMENTS_TASK
#define LATTICE_KERNELS_CPU_SEGMENTS_TASK
namespace lattice::cpu {
// One reduction with everything that it reads. Matching: a is compared with b; the values are x,
// or, sharing, g.
struct SegmentTask {
  const Segments& s;
  const RowArray& x;
  Reduction reduction;
  const void* a;
  const void* b;
  const void* g;
  void* out;
};

inline int64_t row_of(const Segments& s, int64_t e) { return s.rows ? s.rows[e] : e; }
inline int64_t out_of(const Segments& s, int64_t i) { return s.out_rows ? s.out_rows[i] : i; }

}  // namespace lattice::cpu
#endif

#if defined(LATTICE_KERNELS_CPU_SEGMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_SEGMENTS_INL_H
#undef LATTICE_KERNELS_CPU_SEGMENTS_INL_H
#else
#define LATTICE_KERNELS_CPU_SEGMENTS_INL_H
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
    return hn::IfThenElse(hn::Or(hn::Gt(v, most), hn::IsNaN(v)), v,
                          most);  // a NaN stays: nothing is greater
  }
};

struct Min {
  static HWY_INLINE Vec start(Floats d) { return hn::Set(d, INFINITY); }
  static HWY_INLINE Vec add(Vec least, Vec v) {
    return hn::IfThenElse(hn::Or(hn::Lt(v, least), hn::IsNaN(v)), v, least);
  }
};

// Rows in any order are prefetched; rows in memory order are fetched by the machine itself.
template <typename T>
HWY_INLINE void prefetch(const Segments& s, const T* x, int64_t channels, int64_t e, int64_t last) {
  constexpr int64_t kAhead = 16;
  if (s.rows && e + kAhead < last) prefetch_row(x + s.rows[e + kAhead] * channels, channels);
}

// Entries of one segment, or some of them.
struct Entries {
  int64_t begin, end;
  int64_t last;  // where entries end that may be asked for early
  bool more;     // the values of the entries before these are in `sums`
};

// N vectors of columns from c of some entries, to sums + c.
template <class Op, int N, typename T>
HWY_INLINE void reduce_columns(const SegmentTask& t, const Entries& some, int64_t c, float* sums) {
  const Floats d;
  const Segments& s = t.s;
  const int64_t channels = t.x.channels;
  const T* x = static_cast<const T*>(t.x.x);
  const T* end = x + t.x.rows * channels;
  Vec sum[N];
  unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA {
    sum[i] = some.more ? hn::LoadU(d, sums + c + i * kLanes) : Op::start(d);
  });
  for (int64_t e = some.begin; e < some.end; ++e) {
    if (c == 0) prefetch(s, x, channels, e, some.last);
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
  unroll<N>([&](auto i) LATTICE_INLINE_LAMBDA { hn::StoreU(sum[i], d, sums + c + i * kLanes); });
}

// sums has room for the channels rounded up to kLine.
template <class Op, typename T>
HWY_NOINLINE void reduce_entries(const SegmentTask& t, const Entries& some, float* sums) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= t.x.channels; c += 4 * kLanes)
    reduce_columns<Op, 4, T>(t, some, c, sums);
  for (; c < t.x.channels; c += kLanes) reduce_columns<Op, 1, T>(t, some, c, sums);
}

inline float divisor_of(const SegmentTask& t, int64_t e0, int64_t e1) {
  if (t.reduction != Reduction::mean) return 1.0f;
  if (!t.s.weights) return static_cast<float>(e1 - e0);
  float sum = 0;
  for (int64_t e = e0; e < e1; ++e) sum += t.s.weights[e];
  return sum;
}

// The finished sums of segment i, divided and rounded, to its row; an empty segment is 0.
template <typename O>
HWY_NOINLINE void write_segment(const SegmentTask& t, int64_t i, const float* sums) {
  const Floats d;
  const int64_t channels = t.x.channels, e0 = t.s.offsets[i], e1 = t.s.offsets[i + 1];
  O* row = static_cast<O*>(t.out) + out_of(t.s, i) * channels;
  if (e0 == e1) {
    std::fill(row, row + channels, narrow<O>(0.0f));
    return;
  }
  const float divisor = divisor_of(t, e0, e1);
  for (int64_t c = 0; c < channels; c += kLanes) {
    const Vec sum = hn::LoadU(d, sums + c);
    store(divisor == 1.0f ? sum : hn::Div(sum, hn::Set(d, divisor)), d, row + c, channels - c);
  }
}

// Segments [begin, end) of rows in memory order, those of more than kLongSegment entries left out.
// One stream of reads does not use the whole bandwidth of the memory. So the run is read at
// kStreams places in turn, about a kilobyte at each. A segment that is not finished keeps its
// values in `sums`; its entries are still taken one after the other.
template <class Op, typename T, typename O>
HWY_NOINLINE void reduce_streams(const SegmentTask& t, int64_t begin, int64_t end) {
  constexpr int64_t kStreams = 4, kBytes = 1024;
  const Segments& s = t.s;
  const int64_t channels = t.x.channels, stride = round_up(channels, kLine);
  const int64_t rows = std::max<int64_t>(1, kBytes / (channels * static_cast<int64_t>(sizeof(T))));
  struct Stream {
    int64_t segment, end, entry;
  };
  Stream streams[kStreams];
  Buffer<float> sums(kStreams * stride);
  const int64_t first = s.offsets[begin], n = s.offsets[end] - first;
  const auto place = [&](int64_t w) {
    return w == kStreams
               ? end
               : std::lower_bound(s.offsets + begin, s.offsets + end, first + n * w / kStreams) -
                     s.offsets;
  };
  for (int64_t w = 0; w < kStreams; ++w) streams[w] = {place(w), place(w + 1), s.offsets[place(w)]};
  for (bool busy = true; busy;) {
    busy = false;
    for (int64_t w = 0; w < kStreams; ++w) {
      Stream& at = streams[w];
      if (at.segment >= at.end) continue;
      busy = true;
      const int64_t e0 = s.offsets[at.segment], e1 = s.offsets[at.segment + 1];
      const bool skipped = e1 - e0 > kLongSegment;
      const int64_t stop = skipped ? e1 : std::min(e1, at.entry + rows);
      float* kept = sums.data() + w * stride;
      if (!skipped && e0 < e1) reduce_entries<Op, T>(t, {at.entry, stop, 0, at.entry > e0}, kept);
      if (!skipped && stop == e1) write_segment<O>(t, at.segment, kept);
      at.entry = stop;
      if (stop == e1) ++at.segment;
    }
  }
}

// The same for rows in any order.
template <class Op, typename T, typename O>
HWY_NOINLINE void reduce_run(const SegmentTask& t, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = 4;
  const Segments& s = t.s;
  if (!s.rows) return reduce_streams<Op, T, O>(t, begin, end);
  const int64_t channels = t.x.channels, last = s.offsets[s.n];
  Buffer<float> sums(round_up(channels, kLine));
  for (int64_t i = begin; i < end; ++i) {
    if (s.out_rows && i + kAhead < end)
      prefetch_row(static_cast<O*>(t.out) + s.out_rows[i + kAhead] * channels, channels);
    const int64_t e0 = s.offsets[i], e1 = s.offsets[i + 1];
    if (e1 - e0 > kLongSegment) continue;
    reduce_entries<Op, T>(t, {e0, e1, last, false}, sums.data());
    write_segment<O>(t, i, sums.data());
  }
}

// N vectors of columns from c of segment i. kShare: the value is g over the number of matches.
// Otherwise it is the sum of the rows of x that match.
template <bool kShare, int N, typename T>
HWY_INLINE void match_columns(const SegmentTask& t, int64_t i, int64_t c) {
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
      prefetch(s, b, channels, e, last);
      if (!kShare) prefetch(s, x, channels, e, last);
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
HWY_NOINLINE void match_run(const SegmentTask& t, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    int64_t c = 0;
    for (; c + 4 * kLanes <= t.x.channels; c += 4 * kLanes) match_columns<kShare, 4, T>(t, i, c);
    for (; c < t.x.channels; c += kLanes) match_columns<kShare, 1, T>(t, i, c);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
