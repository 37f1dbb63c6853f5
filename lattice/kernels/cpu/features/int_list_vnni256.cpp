// Lists of int_conv with AVX-VNNI, which processors without AVX-512 have.
#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define LATTICE_INT_TARGET __attribute__((target("avx2,avxvnni")))
#include "lattice/kernels/cpu/features/int_list-inl.h"
#include "lattice/kernels/cpu/features/int_ymm-inl.h"

namespace lattice::cpu {
namespace {

template <bool kBytes>
struct Vnni256 : Ymm {
  static constexpr int kEdges = 3;
  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    each<4>([&](auto s) LATTICE_INT_LAMBDA {
      V a[M];
      each<M>([&](auto m)
                  LATTICE_INT_LAMBDA { a[m] = _mm256_set1_epi32(four_bytes(x + at[m] + 4 * s)); });
      each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
        const V b = load(w + s * 4 * kIntPanel + v * 32);
        each<M>([&](auto m) LATTICE_INT_LAMBDA {
          V& to = sum[m * kVectors + v];
          to = kBytes ? _mm256_dpbusd_avx_epi32(to, a[m], b) : _mm256_dpwssd_avx_epi32(to, a[m], b);
        });
      });
    });
  }
};

}  // namespace

bool machine_has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}
IntListKernel vnni256_list(const IntListForm& form) {
  return form.bytes ? list_of<Vnni256<true>>(form) : list_of<Vnni256<false>>(form);
}

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool machine_has_avx_vnni() { return false; }
IntListKernel vnni256_list(const IntListForm&) { return nullptr; }
}  // namespace lattice::cpu
#endif
