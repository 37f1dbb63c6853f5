#include "lattice/kernels/cpu/features/reduce.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types-inl.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// sums[c] = sum of `rows` rows of x, four vectors of channels at a time.
template <typename T>
void sum_piece(const T* x, int64_t rows, int64_t channels, float* sums) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t r = 0; r < rows; ++r) {
      const T* p = x + r * channels + c;
      s0 = hn::Add(s0, load(d, p));
      s1 = hn::Add(s1, load(d, p + lanes));
      s2 = hn::Add(s2, load(d, p + 2 * lanes));
      s3 = hn::Add(s3, load(d, p + 3 * lanes));
    }
    hn::StoreU(s0, d, sums + c);
    hn::StoreU(s1, d, sums + c + lanes);
    hn::StoreU(s2, d, sums + c + 2 * lanes);
    hn::StoreU(s3, d, sums + c + 3 * lanes);
  }
  for (; c < channels; c += lanes) {
    auto s = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r)
      s = hn::Add(s, load_until(d, x + r * channels + c, x + (r + 1) * channels));
    store(s, d, sums + c, channels - c);
  }
}

void sum_piece_any(FloatType storage, const void* x, int64_t first, int64_t rows, int64_t channels,
                   float* sums) {
  visit_float_type(storage, [&]<typename T>(T) {
    sum_piece(static_cast<const T*>(x) + first * channels, rows, channels, sums);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(sum_piece_any);

void sum_rows(FloatType storage, const void* x, int64_t rows, int64_t channels, void* out) {
  constexpr int64_t kRows = 128;
  const int64_t pieces = (rows + kRows - 1) / kRows;
  Buffer<float> sums(pieces * channels);
  parallel_for(pieces, [&](int64_t p) {
    HWY_DYNAMIC_DISPATCH(sum_piece_any)
    (storage, x, p * kRows, std::min(kRows, rows - p * kRows), channels,
     sums.data() + p * channels);
  });
  Buffer<double> totals(channels);
  std::fill(totals.begin(), totals.end(), 0.0);
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t c = 0; c < channels; ++c) totals[c] += double{sums[p * channels + c]};
  visit_float_type(storage, [&]<typename T>(T) {
    for (int64_t c = 0; c < channels; ++c)
      static_cast<T*>(out)[c] = narrow<T>(static_cast<float>(totals[c]));
  });
}

}  // namespace lattice::cpu
#endif
