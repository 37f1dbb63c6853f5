// Vectors of two, three and four numbers, aligned as in Metal: three take the room of four.
#pragma once

#include "lattice/kernels/cuda/words.cuh"

namespace metal {

template <typename T, int N>
struct vec;
template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  METAL_FUNC explicit vec(T a) : x(a), y(a) {}
  METAL_FUNC vec(T a, T b) : x(a), y(b) {}
  METAL_FUNC T& operator[](int i) { return (&x)[i]; }
  METAL_FUNC T operator[](int i) const { return (&x)[i]; }
};
template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  METAL_FUNC explicit vec(T a) : x(a), y(a), z(a) {}
  METAL_FUNC vec(T a, T b, T c) : x(a), y(b), z(c) {}
  METAL_FUNC T& operator[](int i) { return (&x)[i]; }
  METAL_FUNC T operator[](int i) const { return (&x)[i]; }
};
template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  METAL_FUNC explicit vec(T a) : x(a), y(a), z(a), w(a) {}
  METAL_FUNC vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  template <typename U>
  METAL_FUNC explicit vec(vec<U, 4> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  METAL_FUNC T& operator[](int i) { return (&x)[i]; }
  METAL_FUNC T operator[](int i) const { return (&x)[i]; }
};

#define LATTICE_EACH(op)                                            \
  template <typename T, int N>                                      \
  METAL_FUNC vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {      \
    vec<T, N> r;                                                    \
    for (int i = 0; i < N; ++i) r[i] = a[i] op b[i];                \
    return r;                                                       \
  }                                                                 \
  template <typename T, int N>                                      \
  METAL_FUNC vec<T, N> operator op(vec<T, N> a, T b) {              \
    return a op vec<T, N>(b);                                       \
  }                                                                 \
  template <typename T, int N>                                      \
  METAL_FUNC vec<T, N>& operator op##=(vec<T, N>& a, vec<T, N> b) { \
    return a = a op b;                                              \
  }
LATTICE_EACH(+)
LATTICE_EACH(-)
LATTICE_EACH(*)
#undef LATTICE_EACH

}  // namespace metal

// CUDA has types of these names without constructors.
#define LATTICE_VECTORS(T)             \
  typedef metal::vec<T, 2> msl_##T##2; \
  typedef metal::vec<T, 3> msl_##T##3; \
  typedef metal::vec<T, 4> msl_##T##4;
LATTICE_VECTORS(int)
LATTICE_VECTORS(uint)
LATTICE_VECTORS(ushort)
LATTICE_VECTORS(float)
LATTICE_VECTORS(half)
LATTICE_VECTORS(bfloat)
#undef LATTICE_VECTORS
#define int2 msl_int2
#define int3 msl_int3
#define int4 msl_int4
#define uint2 msl_uint2
#define uint3 msl_uint3
#define uint4 msl_uint4
#define ushort2 msl_ushort2
#define ushort4 msl_ushort4
#define float2 msl_float2
#define float3 msl_float3
#define float4 msl_float4
#define half2 msl_half2
#define half4 msl_half4
#define bfloat2 msl_bfloat2
#define bfloat4 msl_bfloat4
