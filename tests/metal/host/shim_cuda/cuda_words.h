// Words, integers and functions of one number that CUDA gives a kernel, for clang's C++.
#pragma once

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((__always_inline__))
#define __grid_constant__
#define MSL_UNSEEN __attribute__((no_sanitize("thread", "address", "undefined")))

typedef unsigned long size_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

extern "C" void* memcpy(void* to, const void* from, size_t n);

#define CUDA_MATH(name)                                         \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline float name##f(float x) { return __builtin_##name##f(x); }
CUDA_MATH(exp)
CUDA_MATH(exp2)
CUDA_MATH(log)
CUDA_MATH(log2)
CUDA_MATH(sqrt)
CUDA_MATH(tanh)
CUDA_MATH(fabs)
CUDA_MATH(floor)
CUDA_MATH(ceil)
CUDA_MATH(rint)
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Never fused, whatever the variant.
inline float __fmul_rn(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
inline float __fadd_rn(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
inline bool isnan(float x) { return __builtin_isnan(x); }
inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
