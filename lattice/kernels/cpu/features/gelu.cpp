#include "lattice/kernels/cpu/features/gelu.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/gelu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/exp-inl.h"
#include "lattice/kernels/cpu/base/float_types-inl.h"
#include "lattice/kernels/cpu/base/threads.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// x P(x^2) / Q(x^2), degrees 13 and 8.
template <class D>
HWY_INLINE hn::Vec<D> erf_vector(D d, hn::Vec<D> x) {
  const auto c = [d](double v) HWY_ATTR { return hn::Set(d, static_cast<float>(v)); };
  const auto near = hn::Min(hn::Max(x, c(-4.0)), c(4.0));
  const auto z = hn::Mul(near, near);
  auto p = hn::MulAdd(z, c(-2.72614225801306e-10), c(2.77068142495902e-08));
  p = hn::MulAdd(z, p, c(-2.10102402082508e-06));
  p = hn::MulAdd(z, p, c(-5.69250639462346e-05));
  p = hn::MulAdd(z, p, c(-7.34990630326855e-04));
  p = hn::MulAdd(z, p, c(-2.95459980854025e-03));
  p = hn::MulAdd(z, p, c(-1.60960333262415e-02));
  auto q = hn::MulAdd(z, c(-1.45660718464996e-05), c(-2.13374055278905e-04));
  q = hn::MulAdd(z, q, c(-1.68282697438203e-03));
  q = hn::MulAdd(z, q, c(-7.37332916720468e-03));
  q = hn::MulAdd(z, q, c(-1.42647390514189e-02));
  return hn::Div(hn::Mul(near, p), q);
}

template <typename T, bool kSlope>
void gelu_values(const T* x, T* y, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, 0.5f);
  for (int64_t i = begin; i < end; i += lanes) {
    const auto v = load_until(d, x + i, x + end);
    const auto below = hn::MulAdd(half, erf_vector(d, hn::Mul(v, hn::Set(d, 0.70710678f))), half);
    auto result = below;
    if constexpr (kSlope) {
      const auto bell = exp_vector(d, hn::Mul(hn::Mul(v, v), hn::Set(d, -0.5f)));
      // Where the bell is 0, x may be infinite.
      const auto part = hn::Mul(hn::Mul(v, bell), hn::Set(d, 0.3989422804f));
      result = hn::Add(below, hn::IfThenZeroElse(hn::Eq(bell, hn::Zero(d)), part));
    } else {
      // Phi of a very negative number rounds to 0; its product with -infinity must be 0.
      const auto low = hn::Lt(v, hn::Set(d, -6.0f));
      result = hn::IfThenZeroElse(low, hn::Mul(v, below));
    }
    store(result, d, y + i, std::min(lanes, end - i));
  }
}

void gelu_piece(FloatType storage, const void* x, bool slope, void* y, int64_t begin, int64_t end) {
  visit_float_type(storage, [&]<typename T>(T) {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (slope)
      gelu_values<T, true>(from, to, begin, end);
    else
      gelu_values<T, false>(from, to, begin, end);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(gelu_piece);

void gelu(FloatType storage, int64_t n, const void* x, bool slope, void* y) {
  parallel_range(n, 1 << 14, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gelu_piece)(storage, x, slope, y, begin, end);
  });
}

}  // namespace lattice::cpu
#endif
