// Vectors, their construction, as_type and numeric_limits.
#pragma once

#include "traits.h"

namespace metal {

template <typename T, int N>
using vec = T __attribute__((ext_vector_type(N)));

namespace shim {
template <typename T>
struct parts {
  static constexpr __constant int n = 1;
  using element = T;
};
#define MSL_PARTS(T, N)                    \
  template <>                              \
  struct parts<vec<T, N>> {                \
    static constexpr __constant int n = N; \
    using element = T;                     \
  };
#define MSL_VECTORS(T) MSL_PARTS(T, 2) MSL_PARTS(T, 3) MSL_PARTS(T, 4)
MSL_VECTORS(char)
MSL_VECTORS(uchar)
MSL_VECTORS(short)
MSL_VECTORS(ushort)
MSL_VECTORS(int)
MSL_VECTORS(uint)
MSL_VECTORS(long)
MSL_VECTORS(ulong)
MSL_VECTORS(half)
MSL_VECTORS(float)
MSL_VECTORS(bfloat)
template <typename T>
using element = typename parts<T>::element;
template <typename T>
constexpr __constant int width = parts<T>::n;
template <typename T>
constexpr __constant bool floats = kind<element<T>> == kFloat;
template <typename T>
constexpr __constant bool integers = kind<element<T>> == kSigned || kind<element<T>> == kUnsigned;
template <typename T>
using if_floats = enable_if_t<floats<T>, bool>;
template <typename T>
using if_vector = enable_if_t<(width<T> > 1), bool>;

template <typename V, typename A>
METAL_FUNC constexpr void put(__private element<V>* to, __private int& i, A a) {
  if constexpr (width<A> == 1) {
    to[i++] = (element<V>)a;
  } else {
    for (int j = 0; j < width<A>; ++j) to[i++] = (element<V>)a[j];
  }
}
}  // namespace shim

// float4(...), vec<T, N>(...) and static_cast<float4>(...) are rewritten to this.
template <typename V>
METAL_FUNC constexpr V msl_make() {
  return V(shim::element<V>(0));
}
template <typename V, typename A, typename... B>
METAL_FUNC constexpr V msl_make(A a, B... b) {
  if constexpr (shim::width<V> == 1) {
    static_assert(sizeof...(B) == 0, "the constructor of a scalar takes one value");
    return static_cast<V>(a);
  } else if constexpr (sizeof...(B) == 0 && shim::width<A> == 1) {
    return V((shim::element<V>)a);
  } else {
    constexpr int n = (shim::width<A> + ... + shim::width<B>);
    static_assert(n == shim::width<V>, "vector constructor: wrong number of components");
    shim::element<V> d[shim::width<V>] = {};
    int i = 0;
    shim::put<V>(d, i, a);
    (shim::put<V>(d, i, b), ...);
    if constexpr (shim::width<V> == 2)
      return V{d[0], d[1]};
    else if constexpr (shim::width<V> == 3)
      return V{d[0], d[1], d[2]};
    else
      return V{d[0], d[1], d[2], d[3]};
  }
}

template <typename T, typename F>
METAL_FUNC constexpr T as_type(F f) {
  static_assert(sizeof(T) == sizeof(F), "as_type: sizes differ");
  return __builtin_bit_cast(T, f);
}

template <typename T>
struct numeric_limits;
#define MSL_INTEGER_LIMITS(T, low, high)                       \
  template <>                                                  \
  struct numeric_limits<T> {                                   \
    static constexpr __constant bool is_integer = true;        \
    static constexpr __constant bool is_signed = T(-1) < T(0); \
    static constexpr T min() { return low; }                   \
    static constexpr T max() { return high; }                  \
    static constexpr T lowest() { return low; }                \
    static constexpr T infinity() { return T(0); }             \
    static constexpr T quiet_NaN() { return T(0); }            \
    static constexpr T epsilon() { return T(0); }              \
  };
MSL_INTEGER_LIMITS(bool, false, true)
MSL_INTEGER_LIMITS(char, -128, 127)
MSL_INTEGER_LIMITS(int8_t, -128, 127)
MSL_INTEGER_LIMITS(uchar, 0, 255)
MSL_INTEGER_LIMITS(short, -32768, 32767)
MSL_INTEGER_LIMITS(ushort, 0, 65535)
MSL_INTEGER_LIMITS(int, (-2147483647 - 1), 2147483647)
MSL_INTEGER_LIMITS(uint, 0u, 4294967295u)
MSL_INTEGER_LIMITS(long, (-9223372036854775807L - 1), 9223372036854775807L)
MSL_INTEGER_LIMITS(ulong, 0ul, 18446744073709551615ul)
#define MSL_FLOAT_LIMITS(T, B, inf, high, low, eps, nan)                     \
  template <>                                                                \
  struct numeric_limits<T> {                                                 \
    static constexpr __constant bool is_integer = false;                     \
    static constexpr __constant bool is_signed = true;                       \
    static constexpr T infinity() { return __builtin_bit_cast(T, (B)inf); }  \
    static constexpr T max() { return __builtin_bit_cast(T, (B)high); }      \
    static constexpr T lowest() { return -__builtin_bit_cast(T, (B)high); }  \
    static constexpr T min() { return __builtin_bit_cast(T, (B)low); }       \
    static constexpr T epsilon() { return __builtin_bit_cast(T, (B)eps); }   \
    static constexpr T quiet_NaN() { return __builtin_bit_cast(T, (B)nan); } \
    static constexpr T denorm_min() { return __builtin_bit_cast(T, (B)1); }  \
  };
MSL_FLOAT_LIMITS(float, uint, 0x7f800000, 0x7f7fffff, 0x00800000, 0x34000000, 0x7fc00000)
MSL_FLOAT_LIMITS(half, ushort, 0x7c00, 0x7bff, 0x0400, 0x1400, 0x7e00)
MSL_FLOAT_LIMITS(bfloat, ushort, 0x7f80, 0x7f7f, 0x0080, 0x3c00, 0x7fc0)

}  // namespace metal

#define MSL_VECTOR_NAMES(T)      \
  typedef metal::vec<T, 2> T##2; \
  typedef metal::vec<T, 3> T##3; \
  typedef metal::vec<T, 4> T##4; \
  namespace metal {              \
  using ::T##2;                  \
  using ::T##3;                  \
  using ::T##4;                  \
  }
MSL_VECTOR_NAMES(char)
MSL_VECTOR_NAMES(uchar)
MSL_VECTOR_NAMES(short)
MSL_VECTOR_NAMES(ushort)
MSL_VECTOR_NAMES(int)
MSL_VECTOR_NAMES(uint)
MSL_VECTOR_NAMES(long)
MSL_VECTOR_NAMES(ulong)
MSL_VECTOR_NAMES(half)
MSL_VECTOR_NAMES(float)
MSL_VECTOR_NAMES(bfloat)
typedef metal::vec<char, 2> bool2;
typedef metal::vec<char, 3> bool3;
typedef metal::vec<char, 4> bool4;
using metal::as_type;
using metal::msl_make;
