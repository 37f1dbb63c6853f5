#include "lattice/kernels/cpu/features/norm.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types-inl.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#ifndef LATTICE_KERNELS_CPU_NORM_SUMS
#define LATTICE_KERNELS_CPU_NORM_SUMS
namespace lattice::cpu {
// Two sums per channel. Without g they are the moments of a piece: x, and (x - m)^2, where m is the
// mean of the piece. With g they are g' and g' (x - mean).
struct SumCall {
  const void *x, *g, *y;
  const float* mean;
};
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// The lanes of a row from column c on: all of them (kWhole), or those before the row's end and
// zeros.
template <bool kWhole, class D, typename T>
HWY_INLINE hn::Vec<D> lanes_at(D d, const T* p, const T* end) {
  if constexpr (kWhole)
    return load(d, p);
  else
    return load_until(d, p, end);
}

// g, or 0 where y is not above 0.
template <bool kWhole, class D, typename T>
HWY_INLINE hn::Vec<D> masked(D d, const T* g, const T* y, const T* end_g, const T* end_y) {
  const auto v = lanes_at<kWhole>(d, g, end_g);
  return y ? hn::IfThenElseZero(hn::Gt(lanes_at<kWhole>(d, y, end_y), hn::Zero(d)), v) : v;
}

// Two sums over rows, add(r, s0, s1), even and odd rows apart: two chains of additions run at a
// time.
template <class D, class Add>
HWY_INLINE void sum_over(D d, int64_t rows, hn::Vec<D>& s0, hn::Vec<D>& s1, Add add) {
  auto t0 = hn::Zero(d), t1 = hn::Zero(d);
  s0 = s1 = hn::Zero(d);
  int64_t r = 0;
  for (; r + 1 < rows; r += 2) {
    add(r, s0, s1);
    add(r + 1, t0, t1);
  }
  if (r < rows) add(r, s0, s1);
  s0 = hn::Add(s0, t0);
  s1 = hn::Add(s1, t1);
}

// One vector of channels from c on.
template <bool kWhole, typename T>
HWY_INLINE void sum_channels(const SumCall& call, int64_t first, int64_t rows, int64_t channels,
                             int64_t c, float* sums) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const T* x = static_cast<const T*>(call.x) + first * channels;
  const T* g = call.g ? static_cast<const T*>(call.g) + first * channels : nullptr;
  const T* y = call.y ? static_cast<const T*>(call.y) + first * channels : nullptr;
  const auto value = [&](int64_t r) HWY_ATTR {
    return lanes_at<kWhole>(d, x + r * channels + c, x + (r + 1) * channels);
  };
  V s0 = hn::Zero(d), s1 = s0, unused = s0;
  if (g) {
    const V mean = lanes_at<kWhole>(d, call.mean + c, call.mean + channels);
    sum_over(d, rows, s0, s1, [&](int64_t r, V& a, V& b) HWY_ATTR {
      const int64_t at = r * channels + c, end = (r + 1) * channels;
      const V w = masked<kWhole>(d, g + at, y ? y + at : nullptr, g + end, y ? y + end : nullptr);
      a = hn::Add(a, w);
      b = hn::MulAdd(w, hn::Sub(value(r), mean), b);
    });
  } else {
    sum_over(d, rows, s0, unused, [&](int64_t r, V& a, V&) HWY_ATTR { a = hn::Add(a, value(r)); });
    const V mean = hn::Div(s0, hn::Set(d, static_cast<float>(rows)));
    sum_over(d, rows, s1, unused, [&](int64_t r, V& a, V&) HWY_ATTR {
      const V centered = hn::Sub(value(r), mean);
      a = hn::MulAdd(centered, centered, a);
    });
  }
  store(s0, d, sums + c, channels - c);
  store(s1, d, sums + channels + c, channels - c);
}

// sums[0 .. channels) and as many after them. A piece is small, so the second sum finds in the
// cache what the first one read.
template <typename T>
void sum_rows_piece(const SumCall& call, int64_t first, int64_t rows, int64_t channels,
                    float* sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes)
    sum_channels<true, T>(call, first, rows, channels, c, sums);
  if (c < channels) sum_channels<false, T>(call, first, rows, channels, c, sums);
}

void sum_rows_any(const Rows& shape, const SumCall& call, int64_t first, int64_t rows,
                  float* sums) {
  visit_float_type(shape.storage, [&]<typename T>(T) {
    sum_rows_piece<T>(call, first, rows, shape.channels, sums);
  });
}

// Calls step(r, c, whole) for each vector of channels of each row; `whole` is a constant.
template <class Step>
HWY_INLINE void for_lanes(int64_t begin, int64_t end, int64_t channels, Step step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (int64_t r = begin; r < end; ++r) {
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) step(r, c, std::true_type());
    if (c < channels) step(r, c, std::false_type());
  }
}

template <typename T>
void norm_piece(const NormRows& call, int64_t begin, int64_t end, int64_t channels) {
  const hn::ScalableTag<float> d;
  const T* x = static_cast<const T*>(call.x);
  const T* residual = static_cast<const T*>(call.residual);
  T* y = static_cast<T*>(call.y);
  for_lanes(begin, end, channels, [&](int64_t r, int64_t c, auto whole) HWY_ATTR {
    constexpr bool kWhole = decltype(whole)::value;
    const int64_t at = r * channels + c, last = (r + 1) * channels;
    const auto vector = [&](const float* p)
                            HWY_ATTR { return lanes_at<kWhole>(d, p + c, p + channels); };
    auto v = hn::Mul(hn::Sub(lanes_at<kWhole>(d, x + at, x + last), vector(call.mean)),
                     vector(call.scale));
    v = hn::Add(v, vector(call.shift));
    if (residual) v = hn::Add(v, lanes_at<kWhole>(d, residual + at, residual + last));
    // NaN stays NaN: only what is below 0 becomes 0.
    if (call.relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    store(v, d, y + at, channels - c);
  });
}

void norm_any(const Rows& shape, const NormRows& call, int64_t begin, int64_t end) {
  visit_float_type(shape.storage,
                   [&]<typename T>(T) { norm_piece<T>(call, begin, end, shape.channels); });
}

template <typename T>
void back_piece(const NormBack& call, int64_t begin, int64_t end, int64_t channels) {
  const hn::ScalableTag<float> d;
  const T* x = static_cast<const T*>(call.x);
  const T* g = static_cast<const T*>(call.g);
  const T* y = static_cast<const T*>(call.y);
  T* dx = static_cast<T*>(call.dx);
  T* kept = static_cast<T*>(call.masked);
  for_lanes(begin, end, channels, [&](int64_t r, int64_t c, auto whole) HWY_ATTR {
    constexpr bool kWhole = decltype(whole)::value;
    const int64_t at = r * channels + c, last = (r + 1) * channels;
    const auto vector = [&](const float* p)
                            HWY_ATTR { return lanes_at<kWhole>(d, p + c, p + channels); };
    const auto w =
        masked<kWhole>(d, g + at, y ? y + at : nullptr, g + last, y ? y + last : nullptr);
    const auto centered = hn::Sub(lanes_at<kWhole>(d, x + at, x + last), vector(call.mean));
    const auto v =
        hn::MulAdd(w, vector(call.a), hn::MulAdd(centered, vector(call.b), vector(call.d)));
    store(v, d, dx + at, channels - c);
    if (kept) store(w, d, kept + at, channels - c);
  });
}

void back_any(const Rows& shape, const NormBack& call, int64_t begin, int64_t end) {
  visit_float_type(shape.storage,
                   [&]<typename T>(T) { back_piece<T>(call, begin, end, shape.channels); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(sum_rows_any);
HWY_EXPORT(norm_any);
HWY_EXPORT(back_any);

namespace {

constexpr int64_t kRows = 128;  // of a piece

// The two sums of every piece, (pieces, 2 channels).
Buffer<float> piece_sums(const Rows& shape, const SumCall& call) {
  const int64_t pieces = (shape.rows + kRows - 1) / kRows;
  Buffer<float> sums(pieces * 2 * shape.channels);
  parallel_for(pieces, [&](int64_t p) {
    HWY_DYNAMIC_DISPATCH(sum_rows_any)
    (shape, call, p * kRows, std::min(kRows, shape.rows - p * kRows),
     sums.data() + p * 2 * shape.channels);
  });
  return sums;
}

// Rows of one task: about 64 KiB of float32.
int64_t grain(const Rows& shape) {
  return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(shape.channels, 1));
}

}  // namespace

void moments(const Rows& shape, const void* x, float* mean, float* var) {
  const Buffer<float> sums = piece_sums(shape, {x, nullptr, nullptr, nullptr});
  const int64_t channels = shape.channels, pieces = channels ? sums.size() / (2 * channels) : 0;
  const double n = static_cast<double>(std::max<int64_t>(shape.rows, 1));
  for (int64_t c = 0; c < channels; ++c) {
    const float* piece = sums.data() + c;
    double sum = 0, square = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += double{piece[p * 2 * channels]};
    // sum (x - mean)^2 = sum (x - m)^2 + 2 (m - mean) sum (x - m) + rows (m - mean)^2, m as the
    // piece rounded it.
    for (int64_t p = 0; p < pieces; ++p) {
      const auto rows = static_cast<float>(std::min(kRows, shape.rows - p * kRows));
      const float s0 = piece[p * 2 * channels];
      const double m = double{s0 / rows}, apart = m - sum / n;
      square += double{piece[(p * 2 + 1) * channels]} +
                apart * (2 * (double{s0} - double{rows} * m) + double{rows} * apart);
    }
    mean[c] = static_cast<float>(sum / n);
    var[c] = static_cast<float>(std::max(square, 0.0) / n);
  }
}

void norm_rows(const Rows& shape, const NormRows& call) {
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_any)(shape, call, begin, end);
  });
}

void norm_sums(const Rows& shape, const void* x, const void* g, const void* y, const float* mean,
               float* s0, float* s1) {
  const Buffer<float> sums = piece_sums(shape, {x, g, y, mean});
  const int64_t width = 2 * shape.channels;
  for (int64_t c = 0; c < width; ++c) {
    double sum = 0;
    for (int64_t i = c; i < sums.size(); i += width) sum += double{sums[i]};
    (c < shape.channels ? s0[c] : s1[c - shape.channels]) = static_cast<float>(sum);
  }
}

void norm_back(const Rows& shape, const NormBack& call) {
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(back_any)(shape, call, begin, end);
  });
}

}  // namespace lattice::cpu
#endif
