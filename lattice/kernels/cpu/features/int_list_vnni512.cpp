// Lists of int_conv with AVX-512 VNNI.
#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined vectors in its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <immintrin.h>

#define LATTICE_INT_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")))
#include "lattice/kernels/cpu/features/int_list-inl.h"

namespace lattice::cpu {
namespace {

template <bool kBytes, int M0>
struct Vnni512 {
  using V = __m512i;
  static constexpr int kVectors = 2, kEdges = M0;
  static LATTICE_INT_INLINE V load(const void* p) { return _mm512_load_si512(p); }
  static LATTICE_INT_INLINE void store(V v, int32_t* p) { _mm512_store_si512(p, v); }
  static LATTICE_INT_INLINE V add(V a, V b) { return _mm512_add_epi32(a, b); }
  static LATTICE_INT_INLINE V mul(V a, V b) { return _mm512_mullo_epi32(a, b); }
  static LATTICE_INT_INLINE V widen(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LATTICE_INT_INLINE V widen(const int16_t* p) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  template <IntType kOut>
  static LATTICE_INT_INLINE void put(const V (&t)[2], const float* scale, bool relu,
                                     Stored<kOut>* y) {
    each<2>([&](auto i) LATTICE_INT_LAMBDA {
      const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(t[i]), _mm512_load_ps(scale + i * 16));
      if constexpr (kOut == IntType::f32) {
        _mm512_storeu_ps(y + i * 16, relu ? _mm512_max_ps(v, _mm512_setzero_ps()) : v);
      } else {
        const __m512 low = _mm512_set1_ps(kLeast<kOut>), high = _mm512_set1_ps(kMost<kOut>);
        V code = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high));
        if constexpr (kZero<kOut> != 0) code = add(code, _mm512_set1_epi32(kZero<kOut>));
        if constexpr (kOut == IntType::i16)
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i * 16), _mm512_cvtepi32_epi16(code));
        else
          _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i * 16), _mm512_cvtepi32_epi8(code));
      }
    });
  }
  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    each<4>([&](auto s) LATTICE_INT_LAMBDA {
      V b[kVectors];
      each<kVectors>([&](auto v)
                         LATTICE_INT_LAMBDA { b[v] = load(w + s * 4 * kIntPanel + v * 64); });
      each<M>([&](auto m) LATTICE_INT_LAMBDA {
        const V a = _mm512_set1_epi32(four_bytes(x + at[m] + 4 * s));
        each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
          V& to = sum[m * kVectors + v];
          to = kBytes ? _mm512_dpbusd_epi32(to, a, b[v]) : _mm512_dpwssd_epi32(to, a, b[v]);
        });
      });
    });
  }
};

}  // namespace

bool machine_has_avx512_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;
}
// GFLOP/s at 64 channels with 6, 8 and 12 edges: 531, 557, 502 on Sapphire Rapids, 707, 683, 593 on
// Zen 5.
IntListKernel vnni512_list(const IntListForm& form) {
  return form.bytes ? list_of<Vnni512<true, 6>>(form) : list_of<Vnni512<false, 4>>(form);
}
IntEndKernel vnni512_end(const IntEnd& end) { return end_of<Vnni512<true, 6>>(end); }

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool machine_has_avx512_vnni() { return false; }
IntListKernel vnni512_list(const IntListForm&) { return nullptr; }
IntEndKernel vnni512_end(const IntEnd&) { return nullptr; }
}  // namespace lattice::cpu
#endif
