// Lists of int_conv with the dot products of NEON (Armv8.2 FEAT_DotProd). They multiply signed
// bytes: an input is read as x - 128, and `start` holds 128 * sum of the weights where that must
// come back. CMake compiles this file for Armv8.2.
#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#define LATTICE_INT_TARGET
#include "lattice/kernels/cpu/features/int_list-inl.h"

namespace lattice::cpu {
namespace {

struct Neon {
  using V = int32x4_t;
  static constexpr int kVectors = 8;
  static LATTICE_INT_INLINE V load(const int32_t* p) { return vld1q_s32(p); }
  static LATTICE_INT_INLINE void store(V v, int32_t* p) { vst1q_s32(p, v); }
  static LATTICE_INT_INLINE V add(V a, V b) { return vaddq_s32(a, b); }
};

struct Sdot : Neon {
  static constexpr int kEdges = 3;
  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    int8x16_t a[M];
    each<M>([&](auto m) LATTICE_INT_LAMBDA {
      a[m] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(x + at[m]), vdupq_n_u8(128)));
    });
    each<4>([&](auto s) LATTICE_INT_LAMBDA {
      each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
        const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(w + s * 4 * kIntPanel + v * 16));
        each<M>([&](auto m) LATTICE_INT_LAMBDA {
          V& to = sum[m * kVectors + v];
          to = vdotq_laneq_s32(to, b, a[m], decltype(s)::value);
        });
      });
    });
  }
};

// Two int16 of each row, whose two products are added as neighbors.
struct Pairs : Neon {
  static constexpr int kEdges = 2;
  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    each<4>([&](auto s) LATTICE_INT_LAMBDA {
      each<M>([&](auto m) LATTICE_INT_LAMBDA {
        const int16x8_t a = vreinterpretq_s16_s32(vdupq_n_s32(four_bytes(x + at[m] + 4 * s)));
        each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
          const int16x8_t b = vreinterpretq_s16_u8(vld1q_u8(w + s * 4 * kIntPanel + v * 16));
          V& to = sum[m * kVectors + v];
          to = add(to,
                   vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
        });
      });
    });
  }
};

}  // namespace

bool machine_has_sdot() {
#if defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#else
  return true;  // every Apple processor of this architecture
#endif
}
IntListKernel sdot_list(const IntListForm& form) {
  return form.bytes ? list_of<Sdot>(form.start) : list_of<Pairs>(form.start);
}

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool machine_has_sdot() { return false; }
IntListKernel sdot_list(const IntListForm&) { return nullptr; }
}  // namespace lattice::cpu
#endif
