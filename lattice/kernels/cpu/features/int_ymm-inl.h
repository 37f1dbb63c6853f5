// What AVX2 and AVX-VNNI share: sums in vectors of 8, and how they become rows. A file defines
// LATTICE_INT_TARGET and includes int_list-inl.h first.
#pragma once

#include <immintrin.h>

namespace lattice::cpu {
namespace {

struct Ymm {
  using V = __m256i;
  static constexpr int kVectors = 4;
  static LATTICE_INT_INLINE V load(const void* p) {
    return _mm256_load_si256(static_cast<const V*>(p));
  }
  static LATTICE_INT_INLINE void store(V v, int32_t* p) {
    _mm256_store_si256(reinterpret_cast<V*>(p), v);
  }
  static LATTICE_INT_INLINE V add(V a, V b) { return _mm256_add_epi32(a, b); }
  static LATTICE_INT_INLINE V mul(V a, V b) { return _mm256_mullo_epi32(a, b); }
  static LATTICE_INT_INLINE V widen(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static LATTICE_INT_INLINE V widen(const int16_t* p) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static LATTICE_INT_INLINE void put_bytes(V v, void* y) {
    _mm256_storeu_si256(static_cast<V*>(y), v);
  }

  template <IntType kOut>
  static LATTICE_INT_INLINE void put(const V (&t)[4], const float* scale, bool relu,
                                     Stored<kOut>* y) {
    V code[4];
    each<4>([&](auto i) LATTICE_INT_LAMBDA {
      const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(t[i]), _mm256_load_ps(scale + i * 8));
      if constexpr (kOut == IntType::f32) {
        _mm256_storeu_ps(y + i * 8, relu ? _mm256_max_ps(v, _mm256_setzero_ps()) : v);
      } else {
        const __m256 low = _mm256_set1_ps(kLeast<kOut>), high = _mm256_set1_ps(kMost<kOut>);
        code[i] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(v, low), high));
        if constexpr (kZero<kOut> != 0) code[i] = add(code[i], _mm256_set1_epi32(kZero<kOut>));
      }
    });
    if constexpr (kOut == IntType::i16) {
      each<2>([&](auto i) LATTICE_INT_LAMBDA {
        const V pair = _mm256_packs_epi32(code[2 * i], code[2 * i + 1]);
        put_bytes(_mm256_permute4x64_epi64(pair, 0xd8), y + i * 16);
      });
    } else if constexpr (kOut != IntType::f32) {
      V all = _mm256_packus_epi16(_mm256_packs_epi32(code[0], code[1]),
                                  _mm256_packs_epi32(code[2], code[3]));
      put_bytes(_mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)), y);
    }
  }
};

}  // namespace
}  // namespace lattice::cpu
