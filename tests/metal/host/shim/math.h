// Functions on floats: computed in float for every type and rounded once. Their accuracy is the
// host's, not Metal's.
#pragma once

#include "vectors.h"

namespace metal {

namespace shim {
template <typename T, typename F>
METAL_FUNC T map(T x, F f) {
  if constexpr (width<T> == 1) {
    return (T)f((float)x);
  } else {
    T r;
    for (int i = 0; i < width<T>; ++i) r[i] = (element<T>)f((float)x[i]);
    return r;
  }
}
template <typename T, typename F>
METAL_FUNC T map(T x, T y, F f) {
  if constexpr (width<T> == 1) {
    return (T)f((float)x, (float)y);
  } else {
    T r;
    for (int i = 0; i < width<T>; ++i) r[i] = (element<T>)f((float)x[i], (float)y[i]);
    return r;
  }
}
METAL_FUNC float below_one(float x) { return x < 1.0f ? x : 0x1.fffffep-1f; }
}  // namespace shim

#define MSL_MATH(name, expression)                                       \
  template <typename T, shim::if_floats<T> = true>                       \
  METAL_FUNC T name(T x) {                                               \
    return shim::map<T>(x, [](float v) -> float { return expression; }); \
  }                                                                      \
  namespace precise {                                                    \
  using metal::name;                                                     \
  }                                                                      \
  namespace fast {                                                       \
  using metal::name;                                                     \
  }
#define MSL_MATH2(name, expression)                                                  \
  template <typename T, shim::if_floats<T> = true>                                   \
  METAL_FUNC T name(T x, shim::given<T> y) {                                         \
    return shim::map<T>(x, y, [](float v, float w) -> float { return expression; }); \
  }                                                                                  \
  namespace precise {                                                                \
  using metal::name;                                                                 \
  }                                                                                  \
  namespace fast {                                                                   \
  using metal::name;                                                                 \
  }
MSL_MATH(acos, __builtin_acosf(v))
MSL_MATH(acosh, __builtin_acoshf(v))
MSL_MATH(asin, __builtin_asinf(v))
MSL_MATH(asinh, __builtin_asinhf(v))
MSL_MATH(atan, __builtin_atanf(v))
MSL_MATH(atanh, __builtin_atanhf(v))
MSL_MATH(ceil, __builtin_ceilf(v))
MSL_MATH(cos, __builtin_cosf(v))
MSL_MATH(cosh, __builtin_coshf(v))
MSL_MATH(cospi, __builtin_cosf(M_PI_F* v))
MSL_MATH(exp, __builtin_expf(v))
MSL_MATH(exp10, __builtin_powf(10.0f, v))
MSL_MATH(exp2, __builtin_exp2f(v))
MSL_MATH(fabs, __builtin_fabsf(v))
MSL_MATH(floor, __builtin_floorf(v))
MSL_MATH(fract, shim::below_one(v - __builtin_floorf(v)))
MSL_MATH(log, __builtin_logf(v))
MSL_MATH(log10, __builtin_log10f(v))
MSL_MATH(log2, __builtin_log2f(v))
MSL_MATH(rint, __builtin_rintf(v))
MSL_MATH(round, __builtin_roundf(v))
MSL_MATH(rsqrt, 1.0f / __builtin_sqrtf(v))
MSL_MATH(saturate, v > 0 ? (v < 1 ? v : 1.0f) : 0.0f)
MSL_MATH(sign, v > 0 ? 1.0f : v < 0 ? -1.0f : v == 0 ? v : 0.0f)
MSL_MATH(sin, __builtin_sinf(v))
MSL_MATH(sinh, __builtin_sinhf(v))
MSL_MATH(sinpi, __builtin_sinf(M_PI_F* v))
MSL_MATH(sqrt, __builtin_sqrtf(v))
MSL_MATH(tan, __builtin_tanf(v))
MSL_MATH(tanh, __builtin_tanhf(v))
MSL_MATH(tanpi, __builtin_tanf(M_PI_F* v))
MSL_MATH(trunc, __builtin_truncf(v))
MSL_MATH2(atan2, __builtin_atan2f(v, w))
MSL_MATH2(copysign, __builtin_copysignf(v, w))
MSL_MATH2(divide, v / w)
MSL_MATH2(fdim, v > w ? v - w : 0.0f)
MSL_MATH2(fmax, __builtin_fmaxf(v, w))
MSL_MATH2(fmin, __builtin_fminf(v, w))
MSL_MATH2(fmod, __builtin_fmodf(v, w))
MSL_MATH2(nextafter, __builtin_nextafterf(v, w))
MSL_MATH2(pow, __builtin_powf(v, w))
MSL_MATH2(powr, __builtin_powf(v, w))
MSL_MATH2(step, w < v ? 0.0f : 1.0f)

template <typename T, shim::if_floats<T> = true>
METAL_FUNC T fma(T a, shim::given<T> b, shim::given<T> c) {
  if constexpr (shim::width<T> == 1) {
    return (T)__builtin_fmaf((float)a, (float)b, (float)c);
  } else {
    T r;
    for (int i = 0; i < shim::width<T>; ++i) r[i] = fma(a[i], b[i], c[i]);
    return r;
  }
}
template <typename T, shim::if_floats<T> = true>
METAL_FUNC T mix(T x, shim::given<T> y, shim::given<T> a) {
  return x + (y - x) * a;
}
template <typename T>
METAL_FUNC T fmin3(T a, T b, T c) {
  return fmin(a, fmin(b, c));
}
template <typename T>
METAL_FUNC T fmax3(T a, T b, T c) {
  return fmax(a, fmax(b, c));
}
template <typename T>
METAL_FUNC T fmedian3(T a, T b, T c) {
  return fmax(fmin(a, b), fmin(fmax(a, b), c));
}
METAL_FUNC float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
METAL_FUNC half ldexp(half x, int k) { return (half)__builtin_ldexpf((float)x, k); }
METAL_FUNC float frexp(float x, thread int& e) {
  if (x == 0 || !__builtin_isfinite(x)) {
    e = 0;
    return x;
  }
  e = (int)__builtin_logbf(x) + 1;
  return __builtin_ldexpf(x, -e);
}
METAL_FUNC float modf(float x, thread float& whole) {
  whole = __builtin_truncf(x);
  return __builtin_isinf(x) ? 0.0f : x - whole;
}

#define MSL_TEST(name, expression)                              \
  METAL_FUNC bool name(float v) {                               \
    const float smallest = 0x1p-126f;                           \
    return expression;                                          \
  }                                                             \
  METAL_FUNC bool name(half h) {                                \
    const float v = (float)h, smallest = 0x1p-14f;              \
    return expression;                                          \
  }                                                             \
  template <typename T, shim::if_vector<T> = true>              \
  METAL_FUNC vec<char, shim::width<T>> name(T x) {              \
    vec<char, shim::width<T>> r;                                \
    for (int i = 0; i < shim::width<T>; ++i) r[i] = name(x[i]); \
    return r;                                                   \
  }
MSL_TEST(isfinite, __builtin_isfinite(v))
MSL_TEST(isinf, __builtin_isinf(v))
MSL_TEST(isnan, v != v)
MSL_TEST(isnormal, __builtin_isfinite(v) && __builtin_fabsf(v) >= smallest)
MSL_TEST(signbit, __builtin_signbit(v))

#define MSL_GEOMETRY                                                                       \
  template <typename T, enable_if_t<(shim::width<T> > 1) && shim::floats<T>, bool> = true> \
  METAL_FUNC
MSL_GEOMETRY shim::element<T> dot(T a, shim::given<T> b) {
  float s = 0;
  for (int i = 0; i < shim::width<T>; ++i) s += (float)a[i] * (float)b[i];
  return (shim::element<T>)s;
}
MSL_GEOMETRY shim::element<T> length_squared(T a) { return dot(a, a); }
MSL_GEOMETRY shim::element<T> length(T a) { return sqrt(dot(a, a)); }
MSL_GEOMETRY shim::element<T> distance(T a, shim::given<T> b) { return length(a - b); }
MSL_GEOMETRY shim::element<T> distance_squared(T a, shim::given<T> b) { return dot(a - b, a - b); }
MSL_GEOMETRY T normalize(T a) { return a * rsqrt(dot(a, a)); }
MSL_GEOMETRY T cross(T a, shim::given<T> b) {
  return T{a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

}  // namespace metal
