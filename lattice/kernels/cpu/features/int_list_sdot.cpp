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
  static LATTICE_INT_INLINE V mul(V a, V b) { return vmulq_s32(a, b); }
  static LATTICE_INT_INLINE V widen(const uint8_t* p) {
    const uint8x8_t bytes = vreinterpret_u8_s32(vdup_n_s32(four_bytes(p)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }
  static LATTICE_INT_INLINE V widen(const int16_t* p) { return vmovl_s16(vld1_s16(p)); }
  template <IntType kOut>
  static LATTICE_INT_INLINE void put(const V (&t)[8], const float* scale, bool relu,
                                     Stored<kOut>* y) {
    int16x4_t code[8];
    each<8>([&](auto i) LATTICE_INT_LAMBDA {
      const float32x4_t v = vmulq_f32(vcvtq_f32_s32(t[i]), vld1q_f32(scale + i * 4));
      if constexpr (kOut == IntType::f32) {
        vst1q_f32(y + i * 4, relu ? vmaxq_f32(v, vdupq_n_f32(0)) : v);
      } else {
        const float32x4_t low = vdupq_n_f32(kLeast<kOut>), high = vdupq_n_f32(kMost<kOut>);
        const V whole = vcvtnq_s32_f32(vminq_f32(vmaxq_f32(v, low), high));
        code[i] = vmovn_s32(add(whole, vdupq_n_s32(kZero<kOut>)));
        if constexpr (kOut == IntType::i16) vst1_s16(y + i * 4, code[i]);
      }
    });
    if constexpr (kOut == IntType::u8 || kOut == IntType::s8)
      each<4>([&](auto i) LATTICE_INT_LAMBDA {
        vst1_u8(y + i * 8, vqmovun_s16(vcombine_s16(code[2 * i], code[2 * i + 1])));
      });
  }
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
  return form.bytes ? list_of<Sdot>(form) : list_of<Pairs>(form);
}
IntEndKernel sdot_end(const IntEnd& end) { return end_of<Sdot>(end); }

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool machine_has_sdot() { return false; }
IntListKernel sdot_list(const IntListForm&) { return nullptr; }
IntEndKernel sdot_end(const IntEnd&) { return nullptr; }
}  // namespace lattice::cpu
#endif
