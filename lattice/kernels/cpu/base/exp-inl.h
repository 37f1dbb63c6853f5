// exp of float32 vectors, for arguments that are not large: softmax subtracts the maximum first.
//
//   exp(x) = 2^n (1 + r + r^2 p(r))      n = round(x / ln 2), r = x - n ln 2, |r| <= 0.3466
//
// p has degree 4 and was fitted for the least relative error, 3.1e-9 before rounding. For
// -87.33 <= x <= 88 the relative error is below 1.2e-7 (one unit in the last place; tested on every
// instruction set). Below -87.33 the result is 0, also for -infinity; NaN stays NaN. Above 88 the
// result is not defined.
//
//   2^y = 2^n (1 + r p(r))                 n = round(y), r = y - n exactly, |r| <= 1 / 2
//
// p has degree 4 and a relative error of 9.2e-8 before rounding: below 1.8e-7 for -126 <= y <= 127,
// with two thirds of the steps of exp. Below -126 the result is 0; NaN stays NaN. Above 127 the
// result is not defined.
//
//   log2(x) = n + s p(s^2)                 x = 2^n m, 1/2 <= m^2 < 2, s = (m - 1) / (m + 1)
//
// p has degree 3 and a relative error of 6.9e-10 before rounding. NaN stays NaN; for other values
// than positive normal numbers the result is not defined. Included once per Highway target.
#include <hwy/highway.h>

#if defined(LATTICE_KERNELS_CPU_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_EXP_INL_H
#undef LATTICE_KERNELS_CPU_EXP_INL_H
#else
#define LATTICE_KERNELS_CPU_EXP_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> exp_vector(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, -87.33f);
  // Adding 1.5 * 2^23 rounds to an integer, which then is in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860682030941723e-6f), r);
  auto p = hn::MulAdd(r, hn::Set(d, 0.001381459878757596f), hn::Set(d, 0.008368716575205326f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166838899254799f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666652113199234f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999403953552f));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(d, 1.0f)));
  const auto bits = hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(bits));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(p, power));
}

template <class D>
HWY_INLINE hn::Vec<D> exp2_vector(D d, hn::Vec<D> y) {
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, -126.0f);
  // The low bits of the sum are n + 127, the exponent of 2^n.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::Add(y, magic);
  const auto r = hn::Sub(y, hn::Sub(shifted, magic));
  auto p = hn::MulAdd(r, hn::Set(d, 0.001326472731307149f), hn::Set(d, 0.009671512991189957f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(y, lowest), hn::Mul(p, power));
}

template <class D>
HWY_INLINE hn::Vec<D> log2_vector(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto n = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));  // sqrt(1 / 2)
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(n)));
  const auto one = hn::Set(d, 1.0f);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), z = hn::Mul(s, s);
  auto p = hn::MulAdd(z, hn::Set(d, 0.43173590302467346f), hn::Set(d, 0.5767143964767456f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.9617988467216492f));
  p = hn::MulAdd(p, z, hn::Set(d, 2.885390043258667f));
  // The exponent bits of NaN look like a number; adding 0 * x makes the result NaN again.
  return hn::MulAdd(s, p, hn::MulAdd(hn::Zero(d), x, hn::ConvertTo(d, n)));
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
