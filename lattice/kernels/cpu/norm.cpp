#include "lattice/kernels/cpu/norm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/memory.h"
#include "lattice/kernels/cpu/rows-inl.h"
#include "lattice/kernels/cpu/threads.h"

#ifndef LATTICE_KERNELS_CPU_NORM_SUMS
#define LATTICE_KERNELS_CPU_NORM_SUMS
namespace lattice::cpu {
// What is summed: x; (x - mean)^2; g' and g' (x - mean).
enum class Summand { value, square, gradient };
struct SumCall {
  Summand kind;
  const void *x, *g, *y;
  const float* mean;
};
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// g, or 0 where y is not above 0.
template <class D, typename T>
HWY_INLINE hn::Vec<D> masked(D d, const T* g, const T* y, const T* end_g, const T* end_y) {
  const auto v = load_until(d, g, end_g);
  return y ? hn::IfThenElseZero(hn::Gt(load_until(d, y, end_y), hn::Zero(d)), v) : v;
}

// sums[0 .. channels) and, for gradients, as many after them.
template <typename T>
void sum_rows_piece(const SumCall& call, int64_t first, int64_t rows, int64_t channels, float* sums) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(call.x) + first * channels;
  const T* g = call.g ? static_cast<const T*>(call.g) + first * channels : nullptr;
  const T* y = call.y ? static_cast<const T*>(call.y) + first * channels : nullptr;
  for (int64_t c = 0; c < channels; c += lanes) {
    const int64_t count = std::min(lanes, channels - c);
    const auto mean = call.mean ? load_until(d, call.mean + c, call.mean + channels) : hn::Zero(d);
    auto s0 = hn::Zero(d), s1 = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * channels + c, end = (r + 1) * channels;
      const auto v = load_until(d, x + at, x + end);
      if (call.kind == Summand::value) {
        s0 = hn::Add(s0, v);
        continue;
      }
      const auto centred = hn::Sub(v, mean);
      if (call.kind == Summand::square) {
        s0 = hn::MulAdd(centred, centred, s0);
        continue;
      }
      const auto w = masked(d, g + at, y ? y + at : nullptr, g + end, y ? y + end : nullptr);
      s0 = hn::Add(s0, w);
      s1 = hn::MulAdd(w, centred, s1);
    }
    store(s0, d, sums + c, count);
    if (call.kind == Summand::gradient) store(s1, d, sums + channels + c, count);
  }
}

void sum_rows_any(const Rows& shape, const SumCall& call, int64_t first, int64_t rows, float* sums) {
  visit_storage(shape.storage, [&]<typename T>(T) { sum_rows_piece<T>(call, first, rows, shape.channels, sums); });
}

template <typename T>
void norm_piece(const NormRows& call, int64_t begin, int64_t end, int64_t channels) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(call.x);
  const T* residual = static_cast<const T*>(call.residual);
  T* y = static_cast<T*>(call.y);
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < channels; c += lanes) {
      const int64_t at = r * channels + c, last = (r + 1) * channels;
      const auto vector = [&](const float* p) { return load_until(d, p + c, p + channels); };
      auto v = hn::Mul(hn::Sub(load_until(d, x + at, x + last), vector(call.mean)), vector(call.scale));
      v = hn::Add(v, vector(call.shift));
      if (residual) v = hn::Add(v, load_until(d, residual + at, residual + last));
      // NaN stays NaN: only what is below 0 becomes 0.
      if (call.relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
      store(v, d, y + at, std::min(lanes, channels - c));
    }
}

void norm_any(const Rows& shape, const NormRows& call, int64_t begin, int64_t end) {
  visit_storage(shape.storage, [&]<typename T>(T) { norm_piece<T>(call, begin, end, shape.channels); });
}

template <typename T>
void back_piece(const NormBack& call, int64_t begin, int64_t end, int64_t channels) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(call.x);
  const T* g = static_cast<const T*>(call.g);
  const T* y = static_cast<const T*>(call.y);
  T* dx = static_cast<T*>(call.dx);
  T* kept = static_cast<T*>(call.masked);
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < channels; c += lanes) {
      const int64_t at = r * channels + c, last = (r + 1) * channels, count = std::min(lanes, channels - c);
      const auto vector = [&](const float* p) { return load_until(d, p + c, p + channels); };
      const auto w = masked(d, g + at, y ? y + at : nullptr, g + last, y ? y + last : nullptr);
      const auto centred = hn::Sub(load_until(d, x + at, x + last), vector(call.mean));
      const auto v = hn::MulAdd(w, vector(call.a), hn::MulAdd(centred, vector(call.b), vector(call.d)));
      store(v, d, dx + at, count);
      if (kept) store(w, d, kept + at, count);
    }
}

void back_any(const Rows& shape, const NormBack& call, int64_t begin, int64_t end) {
  visit_storage(shape.storage, [&]<typename T>(T) { back_piece<T>(call, begin, end, shape.channels); });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(sum_rows_any);
HWY_EXPORT(norm_any);
HWY_EXPORT(back_any);

namespace {

Buffer<double> summed(const Rows& shape, const SumCall& call) {
  constexpr int64_t kRows = 128;
  const int64_t pieces = (shape.rows + kRows - 1) / kRows;
  const int64_t width = shape.channels * (call.kind == Summand::gradient ? 2 : 1);
  Buffer<float> sums(pieces * width);
  parallel_for(pieces, [&](int64_t p) {
    HWY_DYNAMIC_DISPATCH(sum_rows_any)
    (shape, call, p * kRows, std::min(kRows, shape.rows - p * kRows), sums.data() + p * width);
  });
  Buffer<double> totals(width);
  std::fill(totals.begin(), totals.end(), 0.0);
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t c = 0; c < width; ++c) totals[c] += double{sums[p * width + c]};
  return totals;
}

// Rows of one task: about 64 KiB of float32.
int64_t grain(const Rows& shape) { return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(shape.channels, 1)); }

}  // namespace

void moments(const Rows& shape, const void* x, float* mean, float* var) {
  const double n = static_cast<double>(std::max<int64_t>(shape.rows, 1));
  const Buffer<double> sum = summed(shape, {Summand::value, x, nullptr, nullptr, nullptr});
  for (int64_t c = 0; c < shape.channels; ++c) mean[c] = static_cast<float>(sum[c] / n);
  const Buffer<double> square = summed(shape, {Summand::square, x, nullptr, nullptr, mean});
  for (int64_t c = 0; c < shape.channels; ++c) var[c] = static_cast<float>(square[c] / n);
}

void norm_rows(const Rows& shape, const NormRows& call) {
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_any)(shape, call, begin, end);
  });
}

void norm_sums(const Rows& shape, const void* x, const void* g, const void* y, const float* mean, float* s0,
               float* s1) {
  const Buffer<double> sums = summed(shape, {Summand::gradient, x, g, y, mean});
  for (int64_t c = 0; c < shape.channels; ++c) {
    s0[c] = static_cast<float>(sums[c]);
    s1[c] = static_cast<float>(sums[shape.channels + c]);
  }
}

void norm_back(const Rows& shape, const NormBack& call) {
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(back_any)(shape, call, begin, end);
  });
}

}  // namespace lattice::cpu
#endif
