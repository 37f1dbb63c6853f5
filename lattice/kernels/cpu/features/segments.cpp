#include "lattice/kernels/cpu/features/segments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/segments.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/segments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// The output is of the rows' type, or float32 (`to_float32`).
template <class Op, typename T>
void reduce_any(const SegmentTask& t, int64_t begin, int64_t end, bool to_float32) {
  to_float32 ? reduce_run<Op, T, float>(t, begin, end) : reduce_run<Op, T, T>(t, begin, end);
}

void run_segments(const SegmentTask& t, int64_t begin, int64_t end, bool to_float32) {
  visit_float_type(t.x.storage, [&]<typename T>(T) {
    if (t.g)
      match_run<true, T>(t, begin, end);
    else if (t.a)
      match_run<false, T>(t, begin, end);
    else if (t.reduction == Reduction::max)
      reduce_any<Max, T>(t, begin, end, to_float32);
    else if (t.reduction == Reduction::min)
      reduce_any<Min, T>(t, begin, end, to_float32);
    else
      reduce_any<Sum, T>(t, begin, end, to_float32);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {

HWY_EXPORT(run_segments);

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

void reduce_long(const SegmentTask& t, int64_t i) {
  const int64_t e0 = t.s.offsets[i], n = t.s.offsets[i + 1] - e0, channels = t.x.channels;
  const int64_t pieces = (n + kSegmentPiece - 1) / kSegmentPiece;
  Buffer<float> parts(pieces * channels);
  Buffer<int32_t> offsets(pieces + 1);
  for (int64_t p = 0; p <= pieces; ++p)
    offsets[p] = static_cast<int32_t>(e0 + std::min(n, p * kSegmentPiece));
  const Segments cut{pieces, offsets.data(), t.s.rows, nullptr, t.s.weights};
  const SegmentTask task{
      cut,         t.x,     t.reduction == Reduction::mean ? Reduction::sum : t.reduction,
      nullptr,     nullptr, nullptr,
      parts.data()};
  constexpr int64_t kPieces = 4;  // of one task
  parallel_range(pieces, kPieces, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_segments)(task, begin, end, true);
  });
  double divisor = 1;
  if (t.reduction == Reduction::mean) {
    divisor = static_cast<double>(n);
    if (t.s.weights) {
      divisor = 0;
      for (int64_t e = e0; e < e0 + n; ++e) divisor += double{t.s.weights[e]};
    }
  }
  visit_float_type(t.x.storage, [&]<typename T>(T) {
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

void run(const SegmentTask& t) {
  if (t.s.n == 0 || t.x.channels == 0) return;
  each_run(t.s, t.x.channels, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_segments)(t, begin, end, false);
  });
}

}  // namespace

void reduce_segments(const Segments& segments, const RowArray& x, Reduction reduction, void* out) {
  const SegmentTask task{segments, x, reduction, nullptr, nullptr, nullptr, out};
  run(task);
  if (segments.n == 0 || segments.offsets[segments.n] - segments.offsets[0] <= kLongSegment) return;
  for (int64_t i = 0; i < segments.n; ++i)
    if (segments.offsets[i + 1] - segments.offsets[i] > kLongSegment) reduce_long(task, i);
}

void max_match_segments(const Segments& segments, const void* a, const void* b, const RowArray& x,
                        void* out) {
  run({segments, x, Reduction::sum, a, b, nullptr, out});
}

void tie_share_segments(const Segments& segments, const void* a, const RowArray& b, const void* g,
                        void* out) {
  run({segments, b, Reduction::sum, a, b.x, g, out});
}

void argmax_segments(const Segments& s, const RowArray& x, int32_t* out, Reduction kind) {
  const int64_t channels = x.channels;
  const float sign = kind == Reduction::min ? -1.0f : 1.0f;
  if (s.n == 0 || channels == 0) return;
  visit_float_type(x.storage, [&]<typename T>(T) {
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
            if (best[c] < 0 || v > most[c] || (std::isnan(v) && !std::isnan(most[c])) ||
                (same && r < best[c])) {
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
  const int64_t grain =
      std::max<int64_t>(64, (int64_t{1} << 17) / std::max<int64_t>(x.channels, 1));
  visit_float_type(x.storage, [&]<typename T>(T) {
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
