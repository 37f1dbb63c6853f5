// Builtins of Apple's compiler that MLX's header calls for bfloat: each is the function of that
// name.
#pragma once

#include "simdgroup.h"

namespace metal {

#define MSL_BUILTIN(name)                     \
  template <typename T>                       \
  METAL_FUNC T __metal_##name(T x, int = 0) { \
    return metal::name(x);                    \
  }
#define MSL_BUILTIN2(name)                         \
  template <typename T>                            \
  METAL_FUNC T __metal_##name(T x, T y, int = 0) { \
    return metal::name(x, y);                      \
  }
#define MSL_BUILTIN3(name)                              \
  template <typename T>                                 \
  METAL_FUNC T __metal_##name(T x, T y, T z, int = 0) { \
    return metal::name(x, y, z);                        \
  }
#define MSL_BUILTIN_LANES(name)              \
  template <typename T, typename... A>       \
  METAL_FUNC T __metal_##name(T x, A... a) { \
    return metal::name(x, a...);             \
  }
MSL_BUILTIN(acos)
MSL_BUILTIN(acosh)
MSL_BUILTIN(asin)
MSL_BUILTIN(asinh)
MSL_BUILTIN(atan)
MSL_BUILTIN(atanh)
MSL_BUILTIN(ceil)
MSL_BUILTIN(cos)
MSL_BUILTIN(cosh)
MSL_BUILTIN(cospi)
MSL_BUILTIN(exp)
MSL_BUILTIN(exp10)
MSL_BUILTIN(exp2)
MSL_BUILTIN(fabs)
MSL_BUILTIN(floor)
MSL_BUILTIN(fract)
MSL_BUILTIN(log)
MSL_BUILTIN(log10)
MSL_BUILTIN(log2)
MSL_BUILTIN(rint)
MSL_BUILTIN(round)
MSL_BUILTIN(rsqrt)
MSL_BUILTIN(sin)
MSL_BUILTIN(sinh)
MSL_BUILTIN(sinpi)
MSL_BUILTIN(sqrt)
MSL_BUILTIN(tan)
MSL_BUILTIN(tanh)
MSL_BUILTIN(tanpi)
MSL_BUILTIN(trunc)
MSL_BUILTIN2(atan2)
MSL_BUILTIN2(divide)
MSL_BUILTIN2(fmax)
MSL_BUILTIN2(fmin)
MSL_BUILTIN2(fmod)
MSL_BUILTIN2(nextafter)
MSL_BUILTIN2(pow)
MSL_BUILTIN2(powr)
MSL_BUILTIN3(fma)
MSL_BUILTIN3(fmax3)
MSL_BUILTIN3(fmedian3)
MSL_BUILTIN3(fmin3)
MSL_BUILTIN_LANES(simd_broadcast)
MSL_BUILTIN_LANES(simd_max)
MSL_BUILTIN_LANES(simd_min)
MSL_BUILTIN_LANES(simd_prefix_exclusive_product)
MSL_BUILTIN_LANES(simd_prefix_exclusive_sum)
MSL_BUILTIN_LANES(simd_prefix_inclusive_product)
MSL_BUILTIN_LANES(simd_prefix_inclusive_sum)
MSL_BUILTIN_LANES(simd_product)
MSL_BUILTIN_LANES(simd_shuffle)
MSL_BUILTIN_LANES(simd_shuffle_and_fill_down)
MSL_BUILTIN_LANES(simd_shuffle_and_fill_up)
MSL_BUILTIN_LANES(simd_shuffle_down)
MSL_BUILTIN_LANES(simd_shuffle_rotate_down)
MSL_BUILTIN_LANES(simd_shuffle_rotate_up)
MSL_BUILTIN_LANES(simd_shuffle_up)
MSL_BUILTIN_LANES(simd_shuffle_xor)
MSL_BUILTIN_LANES(simd_sum)
METAL_FUNC float __metal_frexp(float x, thread int* e) { return metal::frexp(x, *e); }
METAL_FUNC float __metal_ldexp(float x, int k, int = 0) { return metal::ldexp(x, k); }
METAL_FUNC float __metal_simd_xor(float x) {
  return as_type<float>(metal::simd_xor(as_type<uint>(x)));
}
METAL_FUNC ushort __metal_get_simdgroup_size(ushort) { return 32; }

}  // namespace metal
using metal::__metal_get_simdgroup_size;
