#include "lattice/kernels/cpu/features/adamw.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types-inl.h"
#include "lattice/kernels/cpu/base/threads.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

void adamw_piece(const AdamW& call, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto all = [d](double value) { return hn::Set(d, static_cast<float>(value)); };
  const auto b1 = all(call.b1), b2 = all(call.b2), r1 = all(1 - call.b1), r2 = all(1 - call.b2);
  for (int64_t i = begin; i < end; i += lanes) {
    const auto at = [&](const float* x) { return load_until(d, x + i, x + end); };
    const auto g = hn::Mul(all(double{call.factor}), at(call.g));
    const auto m = hn::Add(hn::Mul(b1, at(call.m)), hn::Mul(r1, g));
    const auto v = hn::Add(hn::Mul(b2, at(call.v)), hn::Mul(r2, hn::Mul(g, g)));
    const auto below =
        hn::Add(hn::Mul(all(double{call.correction}), hn::Sqrt(v)), all(double{call.eps}));
    const auto p = hn::Sub(hn::Mul(all(double{call.decay}), at(call.p)),
                           hn::Div(hn::Mul(all(double{call.rate}), m), below));
    const int64_t count = std::min(lanes, end - i);
    store(p, d, call.p_out + i, count);
    store(m, d, call.m_out + i, count);
    store(v, d, call.v_out + i, count);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(adamw_piece);

void adamw(int64_t n, const AdamW& call) {
  parallel_range(n, 1 << 14, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adamw_piece)(call, begin, end);
  });
}

}  // namespace lattice::cpu
#endif
