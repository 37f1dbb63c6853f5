// One row and panel of sums at a time: 32 values in vector registers.
#include "lattice/kernels/cpu/features/int_finish.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "lattice/kernels/cpu/base/hwy_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/int_finish.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <IntType kOut>
using Stored = std::conditional_t<kOut == IntType::f32, float,
                                  std::conditional_t<kOut == IntType::i16, int16_t, uint8_t>>;

template <IntType kOut, typename Residual>
HWY_INLINE void finish_row(const IntFinishCall& call, const int32_t* sums, const Residual* residual,
                           Stored<kOut>* y) {
  const hn::CappedTag<int32_t, kIntPanel> d;
  const hn::RebindToFloat<decltype(d)> df;
  for (int64_t c = 0; c < kIntPanel; c += static_cast<int64_t>(hn::Lanes(d))) {
    auto t = hn::Load(d, sums + c);
    if (residual) {
      const hn::Rebind<Residual, decltype(d)> dr;
      const auto r = hn::PromoteTo(d, hn::LoadU(dr, residual + c));
      t = hn::Add(t, hn::Mul(r, hn::Load(d, call.factor + c)));
    }
    auto v = hn::Mul(hn::ConvertTo(df, t), hn::Load(df, call.scale + c));
    if constexpr (kOut == IntType::f32) {
      if (call.relu) v = hn::Max(v, hn::Zero(df));
      hn::StoreU(v, df, y + c);
    } else {
      constexpr float kHigh = kOut == IntType::u8 ? 255 : kOut == IntType::s8 ? 127 : 32767;
      constexpr float kLow = kOut == IntType::u8 ? 0 : -kHigh;
      v = hn::Min(hn::Max(v, hn::Set(df, kLow)), hn::Set(df, kHigh));
      auto code = hn::NearestInt(v);
      if constexpr (kOut == IntType::s8) code = hn::Add(code, hn::Set(d, 128));
      const hn::Rebind<Stored<kOut>, decltype(d)> dt;
      hn::StoreU(hn::DemoteTo(dt, code), dt, y + c);
    }
  }
  if constexpr (std::is_same_v<Stored<kOut>, uint8_t>)
    if (call.table)
      for (int64_t c = 0; c < kIntPanel; ++c) y[c] = call.table[y[c]];
}

template <IntType kOut, typename Residual>
HWY_NOINLINE void finish_panel(const IntFinishCall& call) {
  const bool whole = call.columns == kIntPanel;
  const auto columns = static_cast<size_t>(call.columns);
  for (int64_t p = 0; p < call.n; ++p) {
    const int64_t at = (call.order ? call.order[call.first + p] : call.first + p) * call.pitch;
    const Residual* r = call.residual ? static_cast<const Residual*>(call.residual) + at : nullptr;
    Stored<kOut>* y = static_cast<Stored<kOut>*>(call.y) + at;
    const int32_t* sums = call.sums + p * kIntPanel;
    if (whole) {
      finish_row<kOut>(call, sums, r, y);
    } else {
      Residual padded[kIntPanel] = {};
      Stored<kOut> made[kIntPanel];
      if (r) std::memcpy(padded, r, columns * sizeof(Residual));
      finish_row<kOut>(call, sums, r ? padded : nullptr, made);
      std::memcpy(y, made, columns * sizeof(made[0]));
    }
  }
}

template <typename Residual>
HWY_INLINE void finish_as(const IntFinishCall& call) {
  switch (call.out) {
    case IntType::u8:
      return finish_panel<IntType::u8, Residual>(call);
    case IntType::s8:
      return finish_panel<IntType::s8, Residual>(call);
    case IntType::i16:
      return finish_panel<IntType::i16, Residual>(call);
    case IntType::f32:
      return finish_panel<IntType::f32, Residual>(call);
  }
}

void finish(const IntFinishCall& call) {
  call.residual_type == IntType::i16 ? finish_as<int16_t>(call) : finish_as<uint8_t>(call);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(finish);
void int_finish(const IntFinishCall& call) { HWY_DYNAMIC_DISPATCH(finish)(call); }
}  // namespace lattice::cpu
#endif
