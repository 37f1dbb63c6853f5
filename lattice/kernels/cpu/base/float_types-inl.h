// Vectors of float32 from and to rows of any storage type (float_types.h). Included once per
// Highway target.
//
//   load(d, p)              lanes p[0 .. N)
//   load_until(d, p, end)   the same where [p, p + N) may reach past `end`: those lanes are 0, and
//                           nothing there is read
//   store(v, d, p, n)       the first n <= N lanes to p
#include <cstring>

#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types.h"

#if defined(LATTICE_KERNELS_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ROWS_INL_H
#undef LATTICE_KERNELS_CPU_ROWS_INL_H
#else
#define LATTICE_KERNELS_CPU_ROWS_INL_H
#endif

// Highway's own float16 conversion is right where the machine has one; its software form (1.0.3)
// truncates.
#undef LATTICE_NATIVE_F16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
#define LATTICE_NATIVE_F16 1
#else
#define LATTICE_NATIVE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const half_t* HWY_RESTRICT p) {
#if LATTICE_NATIVE_F16
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  const auto bits = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto scaled = hn::Mul(
      hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)))), hn::Set(d, 0x1p112f));
  const auto special = hn::IfThenElseZero(hn::Ge(scaled, hn::Set(d, 65536.0f)),
                                          hn::BitCast(d, hn::Set(du, 0x7f800000u)));
  return hn::Or(hn::Or(scaled, special), hn::BitCast(d, sign));
#endif
}

template <class D, typename T>
HWY_INLINE hn::Vec<D> load_until(D d, const T* HWY_RESTRICT p, const T* end) {
  const auto left = end - p;
  if (left >= static_cast<std::ptrdiff_t>(hn::Lanes(d))) return load(d, p);
  HWY_ALIGN T part[hn::MaxLanes(d)] = {};
  if (left > 0) std::memcpy(part, p, static_cast<size_t>(left) * sizeof(T));
  return load(d, part);
}

template <class D>
HWY_INLINE void store_all(hn::Vec<D> v, D d, float* HWY_RESTRICT p) {
  hn::StoreU(v, d, p);
}

template <class D>
HWY_INLINE void store_all(hn::Vec<D> v, D, bfloat_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto high = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(dh, high), dh, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void store_all(hn::Vec<D> v, [[maybe_unused]] D d, half_t* HWY_RESTRICT p) {
#if LATTICE_NATIVE_F16
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#else
  HWY_ALIGN float part[hn::MaxLanes(d)];
  hn::Store(v, d, part);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = narrow<half_t>(part[i]);
#endif
}

template <class D, typename T>
HWY_INLINE void store(hn::Vec<D> v, D d, T* HWY_RESTRICT p, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return store_all(v, d, p);
  HWY_ALIGN T part[hn::MaxLanes(d)];
  store_all(v, d, part);
  std::memcpy(p, part, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
