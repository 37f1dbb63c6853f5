// Sums over vectors with the same bits on every instruction set. Element i of a row belongs to part
// i mod 16, and the 16 parts are added as ((p, p + 8), + 4, + 2, + 1). Included once per Highway
// target.
#include "lattice/kernels/cpu/features/block-inl.h"

#if defined(LATTICE_KERNELS_CPU_LANE_SUM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_LANE_SUM_INL_H
#undef LATTICE_KERNELS_CPU_LANE_SUM_INL_H
#else
#define LATTICE_KERNELS_CPU_LANE_SUM_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Vectors that hold the 16 parts; vector v of a row is added to vector v mod kSumVectors.
constexpr int kSumVectors = static_cast<int>(kLine / kLanes);

// The sum of the lanes of one vector.
template <class D>
HWY_INLINE float total_of_lanes(D /*d*/, hn::Vec<D> x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GetLane(x);
#else
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return total_of_lanes(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  } else {
    x = hn::Add(x, hn::Shuffle1032(x));
    return hn::GetLane(hn::Add(x, hn::Shuffle2301(x)));
  }
#endif
}

// The sum of the 16 parts.
HWY_INLINE float total_of(Vec (&parts)[kSumVectors]) {
  for (int half = kSumVectors / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) parts[i] = hn::Add(parts[i], parts[i + half]);
  return total_of_lanes(Floats(), parts[0]);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
