// min, max, clamp, abs, select, any, all and functions on the bits of integers.
#pragma once

#include "math.h"

namespace metal {

namespace shim {
template <typename T>
METAL_FUNC constexpr T lesser(T x, T y) {
  if constexpr (kind<T> == kFloat)
    return (T)__builtin_fminf((float)x, (float)y);
  else
    return y < x ? y : x;
}
template <typename T>
METAL_FUNC constexpr T greater(T x, T y) {
  if constexpr (kind<T> == kFloat)
    return (T)__builtin_fmaxf((float)x, (float)y);
  else
    return x < y ? y : x;
}
template <typename T>
METAL_FUNC T magnitude(T x) {
  if constexpr (kind<T> == kFloat)
    return (T)__builtin_fabsf((float)x);
  else if constexpr (kind<T> == kUnsigned)
    return x;
  else
    return x < 0 ? (T)-x : x;
}
}  // namespace shim

// One overload per scalar type, as in Metal: arguments of different types are ambiguous. MLX brings
// those of bfloat.
#define MSL_COMMON(T)                                                     \
  METAL_FUNC constexpr T min(T x, T y) { return shim::lesser<T>(x, y); }  \
  METAL_FUNC constexpr T max(T x, T y) { return shim::greater<T>(x, y); } \
  METAL_FUNC constexpr T clamp(T x, T low, T high) {                      \
    return shim::lesser<T>(shim::greater<T>(x, low), high);               \
  }                                                                       \
  METAL_FUNC T abs(T x) { return shim::magnitude<T>(x); }                 \
  METAL_FUNC T min3(T a, T b, T c) { return min(a, min(b, c)); }          \
  METAL_FUNC T max3(T a, T b, T c) { return max(a, max(b, c)); }          \
  METAL_FUNC T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
MSL_COMMON(char)
MSL_COMMON(uchar)
MSL_COMMON(short)
MSL_COMMON(ushort)
MSL_COMMON(int)
MSL_COMMON(uint)
MSL_COMMON(long)
MSL_COMMON(ulong)
MSL_COMMON(half)
MSL_COMMON(float)
#define MSL_EACH(name, f)                                                                  \
  template <typename T, shim::if_vector<T> = true>                                         \
  METAL_FUNC T name(T x, shim::given<T> y) {                                               \
    T r;                                                                                   \
    for (int i = 0; i < shim::width<T>; ++i) r[i] = shim::f<shim::element<T>>(x[i], y[i]); \
    return r;                                                                              \
  }
MSL_EACH(min, lesser)
MSL_EACH(max, greater)
template <typename T, shim::if_vector<T> = true>
METAL_FUNC T clamp(T x, shim::given<T> low, shim::given<T> high) {
  return min(max(x, low), high);
}
template <typename T, shim::if_vector<T> = true>
METAL_FUNC T abs(T x) {
  T r;
  for (int i = 0; i < shim::width<T>; ++i) r[i] = shim::magnitude<shim::element<T>>(x[i]);
  return r;
}
#define MSL_AS_IS     \
  using metal::abs;   \
  using metal::clamp; \
  using metal::fma;   \
  using metal::max;   \
  using metal::min;
namespace precise {
MSL_AS_IS
}
namespace fast {
MSL_AS_IS
}

METAL_FUNC bool any(bool b) { return b; }
METAL_FUNC bool all(bool b) { return b; }
template <typename T, enable_if_t<(shim::width<T> > 1) && shim::integers<T>, bool> = true>
METAL_FUNC bool any(T x) {
  for (int i = 0; i < shim::width<T>; ++i)
    if (x[i] != 0) return true;
  return false;
}
template <typename T, enable_if_t<(shim::width<T> > 1) && shim::integers<T>, bool> = true>
METAL_FUNC bool all(T x) {
  for (int i = 0; i < shim::width<T>; ++i)
    if (x[i] == 0) return false;
  return true;
}
template <typename T>
METAL_FUNC T select(T a, shim::given<T> b, bool c) {
  return c ? b : a;
}
template <typename T, typename C,
          enable_if_t<(shim::width<T> > 1) && (shim::width<C> == shim::width<T>), bool> = true>
METAL_FUNC T select(T a, shim::given<T> b, C c) {
  T r;
  for (int i = 0; i < shim::width<T>; ++i) r[i] = c[i] ? b[i] : a[i];
  return r;
}

#define MSL_BITS(T, U, bits)                                                            \
  METAL_FUNC T popcount(T x) { return (T)__builtin_popcountl((ulong)(U)x); }            \
  METAL_FUNC T clz(T x) {                                                               \
    return (T)((U)x == 0 ? bits : __builtin_clzl((ulong)(U)x) - (64 - bits));           \
  }                                                                                     \
  METAL_FUNC T ctz(T x) { return (T)((U)x == 0 ? bits : __builtin_ctzl((ulong)(U)x)); } \
  METAL_FUNC T reverse_bits(T x) {                                                      \
    U r = 0;                                                                            \
    for (int i = 0; i < bits; ++i) r = (U)(r << 1 | ((U)x >> i & 1));                   \
    return (T)r;                                                                        \
  }                                                                                     \
  METAL_FUNC T rotate(T x, T by) {                                                      \
    const uint s = (uint)by & (bits - 1);                                               \
    return (T)(s ? (U)((U)x << s | (U)x >> (bits - s)) : (U)x);                         \
  }                                                                                     \
  METAL_FUNC T extract_bits(T x, uint at, uint n) {                                     \
    return n == 0 ? T(0) : (T)((T)((U)x << (bits - at - n)) >> (bits - n));             \
  }                                                                                     \
  METAL_FUNC T insert_bits(T x, T with, uint at, uint n) {                              \
    const U mask = (U)((n >= bits ? (U) ~(U)0 : (U)(((U)1 << n) - 1)) << at);           \
    return (T)(((U)x & (U)~mask) | ((U)((U)with << at) & mask));                        \
  }
MSL_BITS(char, uchar, 8)
MSL_BITS(uchar, uchar, 8)
MSL_BITS(short, ushort, 16)
MSL_BITS(ushort, ushort, 16)
MSL_BITS(int, uint, 32)
MSL_BITS(uint, uint, 32)
MSL_BITS(long, ulong, 64)
MSL_BITS(ulong, ulong, 64)
METAL_FUNC uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
METAL_FUNC int mulhi(int a, int b) { return (int)((long)a * b >> 32); }
METAL_FUNC ulong mulhi(ulong a, ulong b) { return (ulong)((unsigned __int128)a * b >> 64); }
METAL_FUNC uint absdiff(int a, int b) { return a > b ? (uint)a - (uint)b : (uint)b - (uint)a; }
METAL_FUNC uint absdiff(uint a, uint b) { return a > b ? a - b : b - a; }

}  // namespace metal
