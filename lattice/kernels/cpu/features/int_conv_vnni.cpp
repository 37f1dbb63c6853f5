// The list kernels of int_conv with AVX-512 VNNI: four products of bytes, or two of int16, and
// their sum in one instruction. Highway 1.0.3 compiles AVX3_DL with AVX-VNNI, which is another
// extension, so these few functions name their instruction sets themselves. int_conv asks
// has_vnni() first.
#include "lattice/kernels/cpu/features/int_conv_vnni.h"

#if LATTICE_HAS_VNNI_CODE

#include <immintrin.h>

#include <cstring>
#include <type_traits>
#include <utility>

#define LATTICE_VNNI __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")))
#define LATTICE_VNNI_INLINE LATTICE_VNNI __attribute__((always_inline))

namespace lattice::cpu {
namespace {

constexpr int kVectors = 2, kEdges = 4;

template <class F, int... I>
LATTICE_VNNI_INLINE inline void each_of(std::integer_sequence<int, I...>, F&& f) {
  (f(std::integral_constant<int, I>()), ...);
}
template <int N, class F>
LATTICE_VNNI_INLINE inline void each(F&& f) {
  each_of(std::make_integer_sequence<int, N>(), f);
}

LATTICE_VNNI_INLINE inline __m512i four_bytes(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, 4);
  return _mm512_set1_epi32(bits);
}

template <bool kBytes, int M, bool kPut>
LATTICE_VNNI_INLINE inline void block(const IntListCall& call, int64_t e) {
  __m512i sum[M * kVectors];
  int64_t at[M];
  each<M>([&](auto m) LATTICE_VNNI_INLINE {
    at[m] = int64_t{call.in[e + m]} * call.pitch;
    const int32_t* from =
        kPut ? call.start : call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    each<kVectors>([&](auto v) LATTICE_VNNI_INLINE {
      sum[m * kVectors + v] = _mm512_load_si512(from + v * 16);
    });
  });
  const uint8_t *x = call.x, *w = call.w;
  for (const uint8_t* end = w + call.bytes * kIntPanel; w != end; w += 16 * kIntPanel, x += 16) {
    each<M>([&](auto m) LATTICE_VNNI_INLINE { asm("" : "+r"(at[m])); });  // see pin()
    each<4>([&](auto s) LATTICE_VNNI_INLINE {
      const uint8_t* row = w + s * 4 * kIntPanel;
      const __m512i b0 = _mm512_load_si512(row), b1 = _mm512_load_si512(row + 64);
      each<M>([&](auto m) LATTICE_VNNI_INLINE {
        const __m512i a = four_bytes(x + at[m] + s * 4);
        __m512i &s0 = sum[m * kVectors], &s1 = sum[m * kVectors + 1];
        s0 = kBytes ? _mm512_dpbusd_epi32(s0, a, b0) : _mm512_dpwssd_epi32(s0, a, b0);
        s1 = kBytes ? _mm512_dpbusd_epi32(s1, a, b1) : _mm512_dpwssd_epi32(s1, a, b1);
      });
    });
  }
  each<M>([&](auto m) LATTICE_VNNI_INLINE {
    int32_t* to = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    each<kVectors>([&](auto v) LATTICE_VNNI_INLINE {
      _mm512_store_si512(to + v * 16, sum[m * kVectors + v]);
    });
  });
}

template <bool kBytes, bool kPut>
LATTICE_VNNI void list(const IntListCall& given, bool once) {
  const IntListCall call = given;
  int64_t e = 0;
  if (once) {
    for (; e + kEdges <= call.n; e += kEdges) block<kBytes, kEdges, kPut>(call, e);
    each<kEdges - 1>([&](auto m) LATTICE_VNNI_INLINE {
      if (call.n - e == m + 1) {
        block<kBytes, m + 1, kPut>(call, e);
        e += m + 1;
      }
    });
  }
  for (; e < call.n; ++e) block<kBytes, 1, kPut>(call, e);
}

}  // namespace

bool has_vnni() {
  static const bool found = __builtin_cpu_supports("avx512vnni");
  return found;
}
IntListKernel vnni_kernel(bool bytes, bool put) {
  if (bytes) return put ? list<true, true> : list<true, false>;
  return put ? list<false, true> : list<false, false>;
}

}  // namespace lattice::cpu

#endif
