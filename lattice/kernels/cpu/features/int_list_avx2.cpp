// Lists of int_conv with AVX2. vpmaddubsw multiplies pairs of bytes and saturates at 16 bits; S
// such pairs are added in 16 bits, which the lane rule allows for S <= 4.
#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__x86_64__)
#define LATTICE_INT_TARGET __attribute__((target("avx2")))
#include "lattice/kernels/cpu/features/int_list-inl.h"
#include "lattice/kernels/cpu/features/int_ymm-inl.h"

namespace lattice::cpu {
namespace {

template <bool kBytes, int S, int M0>
struct Avx2 : Ymm {
  static constexpr int kEdges = M0;

  // S groups of 4 bytes of one row times those of 8 columns.
  static LATTICE_INT_INLINE V products(const V (&a)[S], const uint8_t* w) {
    if constexpr (!kBytes) return _mm256_madd_epi16(a[0], load(w));
    V t = _mm256_maddubs_epi16(a[0], load(w));
    each<S - 1>([&](auto s) LATTICE_INT_LAMBDA {
      t = _mm256_add_epi16(t, _mm256_maddubs_epi16(a[s + 1], load(w + (s + 1) * 4 * kIntPanel)));
    });
    return _mm256_madd_epi16(t, _mm256_set1_epi16(1));
  }

  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    each<4 / S>([&](auto g) LATTICE_INT_LAMBDA {
      each<M>([&](auto m) LATTICE_INT_LAMBDA {
        V a[S];
        each<S>([&](auto s) LATTICE_INT_LAMBDA {
          a[s] = _mm256_set1_epi32(four_bytes(x + at[m] + 4 * (g * S + s)));
        });
        each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
          V& to = sum[m * kVectors + v];
          to = add(to, products(a, w + g * S * 4 * kIntPanel + v * 32));
          // GCC 12 reassociates integer sums over the unrolled steps and then spills them all.
          asm("" : "+x"(to));
        });
      });
    });
  }
};

}  // namespace

// Four pairs pay where rows are long.
IntListKernel avx2_list(const IntListForm& form) {
  constexpr int64_t kLong = 96;
  if (!form.bytes) return list_of<Avx2<false, 1, 2>>(form);
  if (form.row_bytes >= kLong) return list_of<Avx2<true, 4, 3>>(form);
  return list_of<Avx2<true, 2, 2>>(form);
}
IntEndKernel avx2_end(const IntEnd& end) { return end_of<Ymm>(end); }

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
IntListKernel avx2_list(const IntListForm&) { return nullptr; }
IntEndKernel avx2_end(const IntEnd&) { return nullptr; }
}  // namespace lattice::cpu
#endif
