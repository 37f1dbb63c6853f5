// A block has four rows of a, one channel and up to 1,024 rows of b. The sums of the four rows stay
// in registers. The rows of b and their sums are transposed, so vectors run along them.
#include "lattice/kernels/cpu/features/distance_gradient.h"

#include <algorithm>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/distance_gradient.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/lane_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

constexpr int kGradientRows = 4;            // of a block
constexpr int64_t kGradientColumns = 1024;  // of a block
constexpr int64_t kGradientChunk = 128;     // rows whose sums for b have memory of their own

// Some columns of one channel: b[j] and the sums for b.
struct ChannelColumns {
  const float* b;
  float* to_b;
  int64_t count;
};

// M rows and one channel. Adds to to_a[m * a_stride] the sum over the columns j of
//   w[m, j] (a[m * a_stride] - b[j]),
// and subtracts each term from to_b[j]. Row m of the weights begins at w + m * w_stride.
template <int M>
void sum_slopes(const float* HWY_RESTRICT w, int64_t w_stride, const float* HWY_RESTRICT a,
                int64_t a_stride, const ChannelColumns& columns, float* to_a) {
  const Floats d;
  const float* HWY_RESTRICT b = columns.b;
  float* HWY_RESTRICT to_b = columns.to_b;
  Vec own[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { own[m] = hn::Set(d, a[m * a_stride]); });
  Vec sums[M][kSumVectors];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    unroll<kSumVectors>([&](auto v) LATTICE_INLINE_LAMBDA { sums[m][v] = hn::Zero(d); });
  });
  // Vector v of the 16 columns from j on; `weights` gives the weights of a row, and `only` removes
  // what follows the last column.
  const auto step = [&](int64_t j, auto v, const auto& weights,
                        const auto& only) LATTICE_INLINE_LAMBDA {
    const int64_t at = j + v * kLanes;
    const Vec y = hn::Load(d, b + at);
    Vec back = hn::Load(d, to_b + at);
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      const Vec difference = only(at, hn::Sub(own[m], y)), weight = weights(m, at);
      sums[m][v] = hn::MulAdd(weight, difference, sums[m][v]);
      back = hn::NegMulAdd(weight, difference, back);
    });
    hn::Store(back, d, to_b + at);
  };
  const int64_t whole = columns.count / kLine * kLine;
  for (int64_t j = 0; j < whole; j += kLine)
    unroll<kSumVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
      step(
          j, v,
          [&](auto m, int64_t at)
              LATTICE_INLINE_LAMBDA { return hn::LoadU(d, w + m * w_stride + at); },
          [](int64_t, Vec x) LATTICE_INLINE_LAMBDA { return x; });
    });
  if (whole < columns.count)  // differences to missing rows must be 0 and not a
    unroll<kSumVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
      step(
          whole, v,
          [&](auto m, int64_t at) LATTICE_INLINE_LAMBDA {
            const float* row = w + m * w_stride;
            return load_until(d, row + std::min(at, columns.count), row + columns.count);
          },
          [&](int64_t at, Vec x) LATTICE_INLINE_LAMBDA {
            const auto left = std::clamp<int64_t>(columns.count - at, 0, kLanes);
            return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), x);
          });
    });
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { to_a[m * a_stride] += total_of(sums[m]); });
}

// The rows [begin, end); bt and back are (c, ld).
void add_rows(const WeightedPairs& p, int64_t begin, int64_t end, const float* bt, int64_t ld,
              float* to_a, float* back) {
  for (int64_t j = 0; j < p.m; j += kGradientColumns) {
    const int64_t count = std::min(kGradientColumns, p.m - j);
    for (int64_t i = begin; i < end;) {
      const bool block = i + kGradientRows <= end;
      for (int64_t c = 0; c < p.c; ++c)
        (block ? sum_slopes<kGradientRows>
               : sum_slopes<1>)(p.w + i * p.m + j, p.m, p.a + i * p.c + c, p.c,
                                {bt + c * ld + j, back + c * ld + j, count}, to_a + i * p.c + c);
      i += block ? kGradientRows : 1;
    }
  }
}

void run_distance_gradient(const WeightedPairs& p, float* to_a, float* to_b) {
  const int64_t ld = round_up(p.m, kLine), chunks = (p.n + kGradientChunk - 1) / kGradientChunk;
  Buffer<float> bt(p.c * ld), back(chunks * p.c * ld);
  std::fill(to_a, to_a + p.n * p.c, 0.0f);
  for (int64_t c = 0; c < p.c; ++c) {
    for (int64_t j = 0; j < p.m; ++j) bt[c * ld + j] = p.b[j * p.c + c];
    std::fill(bt.data() + c * ld + p.m, bt.data() + (c + 1) * ld, 0.0f);
  }
  parallel_for(chunks, [&](int64_t chunk) {
    float* own = back.data() + chunk * p.c * ld;
    std::fill(own, own + p.c * ld, 0.0f);
    add_rows(p, chunk * kGradientChunk, std::min(p.n, (chunk + 1) * kGradientChunk), bt.data(), ld,
             to_a, own);
  });
  if (chunks == 0) return std::fill(to_b, to_b + p.m * p.c, 0.0f);
  for (int64_t chunk = 1; chunk < chunks; ++chunk)
    for (int64_t i = 0; i < p.c * ld; ++i) back[i] += back[chunk * p.c * ld + i];
  for (int64_t c = 0; c < p.c; ++c)
    for (int64_t j = 0; j < p.m; ++j) to_b[j * p.c + c] = back[c * ld + j];
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_distance_gradient);

void distance_gradient(const WeightedPairs& pairs, float* to_a, float* to_b) {
  HWY_DYNAMIC_DISPATCH(run_distance_gradient)(pairs, to_a, to_b);
}
}  // namespace lattice::cpu
#endif
