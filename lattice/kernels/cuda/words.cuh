// Keywords, number types and functions of one number.
#pragma once

#define METAL_FUNC __device__ __forceinline__
#define device
#define constant
#define thread
#define threadgroup
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __nv_bfloat16 bfloat;

namespace metal {

template <typename T, typename U>
METAL_FUNC T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type: sizes differ");
  T t;
  memcpy(&t, &u, sizeof(T));
  return t;
}

template <typename T>
METAL_FUNC T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
METAL_FUNC T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
METAL_FUNC T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <typename T>
METAL_FUNC T select(T a, T b, bool c) {
  return c ? b : a;
}

METAL_FUNC uint ctz(uint x) { return x ? uint(__ffs(int(x)) - 1) : 32u; }
METAL_FUNC uint clz(uint x) { return uint(__clz(int(x))); }
METAL_FUNC uint popcount(uint x) { return uint(__popc(x)); }

// CUDA has these in the global namespace, for float too.
#define LATTICE_GLOBAL(space) \
  namespace space {           \
  using ::ceil;               \
  using ::exp;                \
  using ::exp2;               \
  using ::fabs;               \
  using ::floor;              \
  using ::fma;                \
  using ::isnan;              \
  using ::log;                \
  using ::log2;               \
  using ::rint;               \
  using ::rsqrt;              \
  using ::sqrt;               \
  using ::tanh;               \
  }

}  // namespace metal
LATTICE_GLOBAL(metal)
LATTICE_GLOBAL(metal::precise)
LATTICE_GLOBAL(metal::fast)
#undef LATTICE_GLOBAL
