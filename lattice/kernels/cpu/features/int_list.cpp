// Chooses among the list kernels of int_conv, and holds those in plain C++.
#include "lattice/kernels/cpu/features/int_list.h"

#include <algorithm>
#include <string_view>

#include "lattice/kernels/cpu/base/simd.h"

#define LATTICE_INT_TARGET
#include "lattice/kernels/cpu/features/int_list-inl.h"

namespace lattice::cpu {
namespace {

template <bool kBytes>
struct Plain {
  struct V {
    int32_t of[kIntPanel];
  };
  static constexpr int kVectors = 1, kEdges = 1;
  static V load(const int32_t* p) {
    V v;
    std::memcpy(v.of, p, sizeof(v.of));
    return v;
  }
  static void store(const V& v, int32_t* p) { std::memcpy(p, v.of, sizeof(v.of)); }
  static V add(V a, const V& b) {
    for (int j = 0; j < kIntPanel; ++j) a.of[j] += b.of[j];
    return a;
  }
  static V mul(V a, const V& b) {
    for (int j = 0; j < kIntPanel; ++j) a.of[j] *= b.of[j];
    return a;
  }
  template <typename T>
  static V widen(const T* p) {
    V v;
    for (int j = 0; j < kIntPanel; ++j) v.of[j] = p[j];
    return v;
  }
  template <IntType kOut>
  static void put(const V (&t)[1], const float* scale, bool relu, Stored<kOut>* y) {
    for (int j = 0; j < kIntPanel; ++j) {
      const float v = static_cast<float>(t[0].of[j]) * scale[j];
      if constexpr (kOut == IntType::f32) {
        y[j] = relu ? std::max(v, 0.0f) : v;
      } else {
        // Adding 1.5 * 2^23 rounds to a whole number, ties to even.
        const float inside = std::min(std::max(v, kLeast<kOut>), kMost<kOut>);
        const float whole = (inside + 12582912.0f) - 12582912.0f;
        y[j] = static_cast<Stored<kOut>>(static_cast<int32_t>(whole) + kZero<kOut>);
      }
    }
  }
  template <int M>
  static void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w, V (&sum)[M]) {
    for (int s = 0; s < 4; ++s)
      for (int j = 0; j < kIntPanel; ++j) {
        const uint8_t *a = x + at[0] + 4 * s, *b = w + (s * kIntPanel + j) * 4;
        int32_t& to = sum[0].of[j];
        if constexpr (kBytes) {
          for (int g = 0; g < 4; ++g) to += int32_t{a[g]} * static_cast<int8_t>(b[g]);
        } else {
          int16_t one[2], two[2];
          std::memcpy(one, a, 4);
          std::memcpy(two, b, 4);
          to += one[0] * two[0] + one[1] * two[1];
        }
      }
  }
};

IntListKernel plain_list(const IntListForm& form) {
  return form.bytes ? list_of<Plain<true>>(form) : list_of<Plain<false>>(form);
}

}  // namespace

const char* name(IntDot dot) {
  constexpr const char* kNames[] = {"plain C++", "AVX2", "AVX-VNNI", "AVX-512 VNNI", "NEON SDOT"};
  return kNames[static_cast<int>(dot)];
}

bool has(IntDot dot) {
  const std::string_view simd = simd_name();
  const bool avx512 = simd.starts_with("AVX3"), avx2 = avx512 || simd == "AVX2";
  switch (dot) {
    case IntDot::avx2:
      return avx2;
    case IntDot::vnni256: {
      static const bool found = machine_has_avx_vnni();
      return avx2 && found;
    }
    case IntDot::vnni512: {
      static const bool found = machine_has_avx512_vnni();
      return avx512 && found;
    }
    case IntDot::sdot: {
      static const bool found = machine_has_sdot();
      return found && simd.starts_with("NEON");
    }
    default:
      return true;
  }
}

std::vector<IntDot> int_dots() {
  std::vector<IntDot> found;
  for (const IntDot dot :
       {IntDot::vnni512, IntDot::vnni256, IntDot::avx2, IntDot::sdot, IntDot::plain})
    if (has(dot)) found.push_back(dot);
  return found;
}

IntListKernel int_list_kernel(IntDot dot, const IntListForm& form) {
  switch (dot) {
    case IntDot::avx2:
      return avx2_list(form);
    case IntDot::vnni256:
      return vnni256_list(form);
    case IntDot::vnni512:
      return vnni512_list(form);
    case IntDot::sdot:
      return sdot_list(form);
    default:
      return plain_list(form);
  }
}

IntEndKernel int_end_kernel(IntDot dot, const IntEnd& end) {
  switch (dot) {
    case IntDot::avx2:
    case IntDot::vnni256:
      return avx2_end(end);
    case IntDot::vnni512:
      return vnni512_end(end);
    case IntDot::sdot:
      return sdot_end(end);
    default:
      return end_of<Plain<true>>(end);
  }
}

}  // namespace lattice::cpu
