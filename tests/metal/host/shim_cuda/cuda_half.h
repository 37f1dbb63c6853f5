// __half and __nv_bfloat16: every operation is rounded to the type.
#pragma once

#include "cuda_words.h"

struct __half {
  _Float16 value;
  __half() = default;
  __half(float x) : value((_Float16)x) {}
  __half(int x) : value((_Float16)(float)x) {}
  operator float() const { return (float)value; }
};
typedef __half half;

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) {
    const uint32_t u = __builtin_bit_cast(uint32_t, x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = uint16_t(nan ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  __nv_bfloat16(int x) : __nv_bfloat16((float)x) {}
  operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
};

#define CUDA_HALF_OPERATOR(T, op)                                    \
  inline T operator op(T a, T b) { return T(float(a) op float(b)); } \
  inline T& operator op##=(T & a, T b) { return a = T(float(a) op float(b)); }
#define CUDA_HALF(T)       \
  CUDA_HALF_OPERATOR(T, +) \
  CUDA_HALF_OPERATOR(T, -) \
  CUDA_HALF_OPERATOR(T, *) \
  CUDA_HALF_OPERATOR(T, /)
CUDA_HALF(__half)
CUDA_HALF(__nv_bfloat16)
