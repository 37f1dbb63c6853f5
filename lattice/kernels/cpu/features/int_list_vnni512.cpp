// Lists of int_conv with AVX-512 VNNI.
#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__x86_64__)
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
// 8 edges hide the latency on Sapphire Rapids: 531 GFLOP/s at 64 channels with 6, 557 with 8, 502
// with 12. On Zen 4 4 edges were enough.
IntListKernel vnni512_list(const IntListForm& form) {
  return form.bytes ? list_of<Vnni512<true, 8>>(form.start)
                    : list_of<Vnni512<false, 4>>(form.start);
}

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool machine_has_avx512_vnni() { return false; }
IntListKernel vnni512_list(const IntListForm&) { return nullptr; }
}  // namespace lattice::cpu
#endif
