#include "lattice/kernels/cpu/features/distance_tiles.h"

#include <algorithm>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/distance_tiles.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// A block has up to kBlockRows rows and kBlockVectors vectors of columns, whose sums stay in
// registers.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kBlockRows = 4, kBlockVectors = 4;
#else
constexpr int kBlockRows = 4, kBlockVectors = 2;
#endif
constexpr int64_t kBlockColumns = kBlockVectors * kLanes;
static_assert(DistanceTiles::kWidth % kBlockColumns == 0);

template <bool kProducts, int M>
HWY_INLINE void distance_block(const float* HWY_RESTRICT a, int64_t c,
                               const float* HWY_RESTRICT panel, int64_t columns,
                               float* HWY_RESTRICT out, int64_t ld) {
  const Floats d;
  Vec sum[M * kBlockVectors];
  unroll<M * kBlockVectors>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  for (int64_t i = 0; i < c; ++i, panel += DistanceTiles::kWidth) {
    Vec b[kBlockVectors];
    unroll<kBlockVectors>([&](auto v)
                              LATTICE_INLINE_LAMBDA { b[v] = hn::LoadU(d, panel + v * kLanes); });
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      const Vec x = hn::Set(d, a[m * c + i]);
      unroll<kBlockVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
        Vec& to = sum[m * kBlockVectors + v];
        const Vec y = kProducts ? x : hn::Sub(x, b[v]);
        to = hn::Add(to, hn::Mul(y, kProducts ? b[v] : y));
      });
    });
  }
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    unroll<kBlockVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
      const int64_t left = columns - v * kLanes;
      if (left > 0)
        store(sum[m * kBlockVectors + v], d, out + m * ld + v * kLanes, std::min(left, kLanes));
    });
  });
}

template <bool kProducts>
void distance_rows(const float* a, int64_t rows, int64_t c, const float* panel, int64_t columns,
                   float* out, int64_t ld) {
  int64_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows)
    distance_block<kProducts, kBlockRows>(a + r * c, c, panel, columns, out + r * ld, ld);
  for (; r < rows; ++r)
    distance_block<kProducts, 1>(a + r * c, c, panel, columns, out + r * ld, ld);
}

void run_distance_tiles(const float* panels, int64_t c, const float* a, int64_t rows, int64_t count,
                        bool products, float* out, int64_t ld) {
  for (int64_t j = 0; j < count; j += kBlockColumns) {
    const float* panel =
        panels + j / DistanceTiles::kWidth * c * DistanceTiles::kWidth + j % DistanceTiles::kWidth;
    const int64_t columns = std::min(kBlockColumns, count - j);
    if (products)
      distance_rows<true>(a, rows, c, panel, columns, out + j, ld);
    else
      distance_rows<false>(a, rows, c, panel, columns, out + j, ld);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {
HWY_EXPORT(run_distance_tiles);
}  // namespace

DistanceTiles::DistanceTiles(const float* b, int64_t m, int64_t c)
    : c_(c), panels_((m + kWidth - 1) / kWidth * kWidth * c) {
  parallel_range((m + kWidth - 1) / kWidth, 4, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      float* to = panels_.data() + p * c * kWidth;
      const int64_t rows = std::min(kWidth, m - p * kWidth);
      if (rows < kWidth) std::fill_n(to, c * kWidth, 0.0f);
      for (int64_t i = 0; i < c; ++i)
        for (int64_t j = 0; j < rows; ++j) to[i * kWidth + j] = b[(p * kWidth + j) * c + i];
    }
  });
}

void DistanceTiles::run(const float* a, int64_t rows, int64_t first, int64_t count, bool products,
                        float* out, int64_t ld) const {
  HWY_DYNAMIC_DISPATCH(run_distance_tiles)
  (panels_.data() + first * c_, c_, a, rows, count, products, out, ld);
}

}  // namespace lattice::cpu
#endif
