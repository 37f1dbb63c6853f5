// Register kernels of int_conv: all edges of one list that fall on one step, for one panel of 32
// output columns, and what is made of the sums. Included once per Highway target.
//
//   sums[out[e] - first, :] += x[in[e], :] W
//
// A step of a kernel takes 4 bytes of each of M rows, four u8 or two int16, times 4 bytes of each
// output column. `Dot` says how: with the lane rule, or one value at a time. AVX-512 with VNNI has
// kernels of its own (int_conv_vnni.h).
#include <cstring>

#include "lattice/kernels/cpu/features/block-inl.h"
#include "lattice/kernels/cpu/features/int_conv.h"
#include "lattice/kernels/cpu/features/int_conv_vnni.h"

#if defined(LATTICE_KERNELS_CPU_INT_CONV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_INT_CONV_INL_H
#undef LATTICE_KERNELS_CPU_INT_CONV_INL_H
#else
#define LATTICE_KERNELS_CPU_INT_CONV_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// GCC 12 reassociates integer sums over the unrolled steps and then spills them all. An empty
// instruction hides each sum after its addition.
template <class V>
HWY_INLINE void keep(V& v) {
#if HWY_COMPILER_GCC && HWY_ARCH_X86
  asm("" : "+x"(v));
#endif
  (void)v;
}

HWY_INLINE int32_t four_bytes(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, 4);
  return bits;
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// S pairs of bytes are added in 16 bits, which the lane rule allows for S <= 4.
template <IntType kType, int S, int M0>
struct Lanes {
  using V = __m256i;
  static constexpr int kVectors = 4, kStep = 4 * S, kEdges = M0;
  static HWY_INLINE V load(const int32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const V*>(p));
  }
  static HWY_INLINE V load(const uint8_t* p) {
    return _mm256_load_si256(reinterpret_cast<const V*>(p));
  }
  static HWY_INLINE void store(V v, int32_t* p) { _mm256_store_si256(reinterpret_cast<V*>(p), v); }
  template <int M>
  static HWY_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                              V (&sum)[M * kVectors]) {
    const V one = _mm256_set1_epi16(1);
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      V a[S];
      unroll<S>([&](auto s) LATTICE_INLINE_LAMBDA {
        a[s] = _mm256_set1_epi32(four_bytes(x + at[m] + 4 * s));
      });
      unroll<kVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
        V t;
        if constexpr (kType == IntType::u8) {
          t = _mm256_maddubs_epi16(a[0], load(w + v * 32));
          unroll<S - 1>([&](auto s) LATTICE_INLINE_LAMBDA {
            t = _mm256_add_epi16(t,
                                 _mm256_maddubs_epi16(a[s + 1], load(w + (s + 1) * 128 + v * 32)));
          });
          t = _mm256_madd_epi16(t, one);
        } else {
          t = _mm256_madd_epi16(a[0], load(w + v * 32));
        }
        V& to = sum[m * kVectors + v];
        to = _mm256_add_epi32(to, t);
        keep(to);
      });
    });
  }
};
// Four pairs pay where rows are long.
template <IntType kType>
using Dot = Lanes<kType, kType == IntType::u8 ? 2 : 1, 2>;
template <IntType kType>
using DotOfMany = Lanes<kType, kType == IntType::u8 ? 4 : 1, 3>;
#else
// One vector of four values, in plain C++.
struct Four {
  int32_t of[4];
};
template <IntType kType>
struct Dot {
  using V = Four;
  static constexpr int kVectors = 8, kStep = 4, kEdges = 1;
  static HWY_INLINE V load(const int32_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static HWY_INLINE void store(V v, int32_t* p) { std::memcpy(p, v.of, sizeof(v.of)); }
  template <int M>
  static HWY_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                              V (&sum)[M * kVectors]) {
    for (int m = 0; m < M; ++m)
      for (int j = 0; j < kVectors * 4; ++j) {
        int32_t& to = sum[m * kVectors + j / 4].of[j % 4];
        if constexpr (kType == IntType::u8) {
          for (int g = 0; g < 4; ++g)
            to += int32_t{x[at[m] + g]} * static_cast<int8_t>(w[j * 4 + g]);
        } else {
          int16_t a[2], b[2];
          std::memcpy(a, x + at[m], 4);
          std::memcpy(b, w + j * 4, 4);
          to += a[0] * b[0] + a[1] * b[1];
        }
      }
  }
};
template <IntType kType>
using DotOfMany = Dot<kType>;
#endif

template <class D, int M, bool kPut>
HWY_INLINE void int_block(const IntListCall& call, int64_t e) {
  constexpr int kLanesOf = static_cast<int>(kIntPanel) / D::kVectors;
  constexpr int kUnroll = 16 / D::kStep, kBlock = D::kStep * static_cast<int>(kIntPanel);
  typename D::V sum[M * D::kVectors];
  int64_t at[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    at[m] = int64_t{call.in[e + m]} * call.pitch;
    const int32_t* from =
        kPut ? call.start : call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    unroll<D::kVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
      sum[m * D::kVectors + v] = D::load(from + v * kLanesOf);
    });
  });
  const uint8_t *x = call.x, *w = call.w;
  for (const uint8_t* end = w + call.bytes * kIntPanel; w != end; w += kUnroll * kBlock, x += 16) {
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { pin(at[m]); });
    unroll<kUnroll>([&](auto s) LATTICE_INLINE_LAMBDA {
      D::template step<M>(x + s * D::kStep, at, w + s * kBlock, sum);
    });
  }
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    int32_t* to = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    unroll<D::kVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
      D::store(sum[m * D::kVectors + v], to + v * kLanesOf);
    });
  });
}

// kOnce: no two edges of the list share an output row, so that blocks of edges are independent.
template <class D, bool kPut>
HWY_NOINLINE void int_list(const IntListCall& given, bool once) {
  const IntListCall call = given;
  int64_t e = 0;
  if (once) {
    for (; e + D::kEdges <= call.n; e += D::kEdges) int_block<D, D::kEdges, kPut>(call, e);
    unroll<D::kEdges - 1>([&](auto m) LATTICE_INLINE_LAMBDA {
      if (call.n - e == m + 1) {
        int_block<D, m + 1, kPut>(call, e);
        e += m + 1;
      }
    });
  }
  for (; e < call.n; ++e) int_block<D, 1, kPut>(call, e);
}

// Whether lists are added by int_conv_vnni.h.
HWY_INLINE bool with_vnni() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 && LATTICE_HAS_VNNI_CODE
  return has_vnni();
#else
  return false;
#endif
}

// The kernel of a type, for rows of so many bytes.
HWY_INLINE IntListKernel int_list_kernel(IntType type, int64_t row_bytes, bool put) {
  constexpr int64_t kMany = 96;
#if LATTICE_HAS_VNNI_CODE
  if (with_vnni()) return vnni_kernel(type == IntType::u8, put);
#endif
  if (type == IntType::i16)
    return put ? int_list<Dot<IntType::i16>, true> : int_list<Dot<IntType::i16>, false>;
  if (row_bytes >= kMany)
    return put ? int_list<DotOfMany<IntType::u8>, true> : int_list<DotOfMany<IntType::u8>, false>;
  return put ? int_list<Dot<IntType::u8>, true> : int_list<Dot<IntType::u8>, false>;
}

// The sums of one row and panel become 32 values of `y`; arrays hold the columns of the panel.
struct IntFinish {
  const float* scale;
  const int32_t* factor;  // of the residual, or null
};

template <IntType kOut, typename Residual>
HWY_INLINE void finish_row(const IntFinish& f, const int32_t* sums, const Residual* residual,
                           void* y) {
  const hn::ScalableTag<int32_t> d;
  const hn::RebindToFloat<decltype(d)> df;
  constexpr int64_t kCount = kLanes < kIntPanel ? kLanes : kIntPanel;
  for (int64_t c = 0; c < kIntPanel; c += kCount) {
    auto t = hn::Load(d, sums + c);
    if (residual) {
      const hn::Rebind<Residual, decltype(d)> dr;
      const auto r = hn::PromoteTo(d, hn::LoadU(dr, residual + c));
      t = hn::Add(t, hn::Mul(r, hn::Load(d, f.factor + c)));
    }
    auto v = hn::Mul(hn::ConvertTo(df, t), hn::Load(df, f.scale + c));
    if constexpr (kOut == IntType::f32) {
      hn::StoreU(v, df, static_cast<float*>(y) + c);
    } else {
      constexpr float kLow = kOut == IntType::u8 ? 0.0f : -32767.0f;
      constexpr float kHigh = kOut == IntType::u8 ? 255.0f : 32767.0f;
      v = hn::Min(hn::Max(v, hn::Set(df, kLow)), hn::Set(df, kHigh));
      using T = std::conditional_t<kOut == IntType::u8, uint8_t, int16_t>;
      const hn::Rebind<T, decltype(d)> dt;
      hn::StoreU(hn::DemoteTo(dt, hn::NearestInt(v)), dt, static_cast<T*>(y) + c);
    }
  }
}

// Rows [0, n) of sums; row p goes to output row rows[p]. Columns [0, columns) of the panel exist.
struct IntFinishCall {
  IntFinish panel;
  const int32_t* sums;
  int64_t n, columns, pitch, first;
  const int32_t* order;  // position -> row, or null
  const void* residual;  // at the first column of the panel, or null
  void* y;               // at the first column of the panel
};
template <IntType kOut, typename Residual>
HWY_NOINLINE void finish_panel(const IntFinishCall& call) {
  using T = std::conditional_t<kOut == IntType::u8, uint8_t,
                               std::conditional_t<kOut == IntType::i16, int16_t, float>>;
  const bool whole = call.columns == kIntPanel;
  const auto columns = static_cast<size_t>(call.columns);
  for (int64_t p = 0; p < call.n; ++p) {
    const int64_t at = (call.order ? call.order[call.first + p] : call.first + p) * call.pitch;
    const Residual* r = call.residual ? static_cast<const Residual*>(call.residual) + at : nullptr;
    T* y = static_cast<T*>(call.y) + at;
    const int32_t* sums = call.sums + p * kIntPanel;
    if (whole) {
      finish_row<kOut>(call.panel, sums, r, y);
    } else {
      Residual padded[kIntPanel] = {};
      T made[kIntPanel];
      if (r) std::memcpy(padded, r, columns * sizeof(Residual));
      finish_row<kOut>(call.panel, sums, r ? padded : nullptr, made);
      std::memcpy(y, made, columns * sizeof(T));
    }
  }
}
template <typename Residual>
HWY_INLINE void finish_as(IntType out, const IntFinishCall& call) {
  if (out == IntType::u8) return finish_panel<IntType::u8, Residual>(call);
  if (out == IntType::i16) return finish_panel<IntType::i16, Residual>(call);
  return finish_panel<IntType::f32, Residual>(call);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
