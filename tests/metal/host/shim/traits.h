// Type traits of metal_stdlib, which know address spaces, and the shim's own on vectors.
#pragma once

#include "base.h"

namespace metal {

template <typename T, T v>
struct integral_constant {
  static constexpr __constant T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool b, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  using type = T;
};
template <bool b, typename T = void>
using enable_if_t = typename enable_if<b, T>::type;
template <bool b, typename T, typename U>
struct conditional {
  using type = T;
};
template <typename T, typename U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool b, typename T, typename U>
using conditional_t = typename conditional<b, T, U>::type;
template <typename T, typename U>
struct is_same : false_type {};
template <typename T>
struct is_same<T, T> : true_type {};
template <typename T, typename U>
constexpr __constant bool is_same_v = is_same<T, U>::value;
template <typename F, typename T>
struct is_convertible : bool_constant<__is_convertible_to(F, T)> {};
template <typename F, typename T>
constexpr __constant bool is_convertible_v = is_convertible<F, T>::value;

#define MSL_REMOVE(name, pattern) \
  template <typename T>           \
  struct name {                   \
    using type = T;               \
  };                              \
  template <typename T>           \
  struct name<pattern> {          \
    using type = T;               \
  };                              \
  template <typename T>           \
  using name##_t = typename name<T>::type;
MSL_REMOVE(remove_const, const T)
MSL_REMOVE(remove_volatile, volatile T)
template <typename T>
struct remove_cv {
  using type = remove_const_t<remove_volatile_t<T>>;
};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;

template <typename T>
struct remove_reference {
  using type = T;
};
template <typename T>
struct remove_pointer {
  using type = T;
};
template <typename T>
struct remove_addrspace {
  using type = T;
};
template <typename T>
struct is_pointer : false_type {};
#define MSL_SPACES(space)             \
  template <typename T>               \
  struct remove_reference<T space&> { \
    using type = T space;             \
  };                                  \
  template <typename T>               \
  struct remove_pointer<T space*> {   \
    using type = T;                   \
  };                                  \
  template <typename T>               \
  struct remove_addrspace<T space> {  \
    using type = T;                   \
  };                                  \
  template <typename T>               \
  struct is_pointer<T space*> : true_type {};
MSL_SPACES(__private)
MSL_SPACES(__global)
MSL_SPACES(__local)
MSL_SPACES(__constant)
#ifdef __opencl_c_generic_address_space
MSL_SPACES(__generic)
template <typename T>
struct remove_reference<T&&> {
  using type = T;
};
#endif
template <typename T>
using remove_reference_t = typename remove_reference<T>::type;
template <typename T>
using remove_pointer_t = typename remove_pointer<T>::type;
template <typename T>
using remove_addrspace_t = typename remove_addrspace<T>::type;
template <typename T>
constexpr __constant bool is_pointer_v = is_pointer<T>::value;

namespace shim {
template <typename T>
using bare = remove_cv_t<remove_addrspace_t<remove_cv_t<remove_reference_t<T>>>>;
enum { kNone, kSigned, kUnsigned, kFloat };
template <typename T>
constexpr __constant int kind = kNone;
#define MSL_KIND(T, k) \
  template <>          \
  constexpr __constant int kind<T> = k;
MSL_KIND(bool, kUnsigned)
MSL_KIND(char, kSigned)
MSL_KIND(signed char, kSigned)
MSL_KIND(short, kSigned)
MSL_KIND(int, kSigned)
MSL_KIND(long, kSigned)
MSL_KIND(uchar, kUnsigned)
MSL_KIND(ushort, kUnsigned)
MSL_KIND(uint, kUnsigned)
MSL_KIND(ulong, kUnsigned)
MSL_KIND(half, kFloat)
MSL_KIND(bfloat, kFloat)
MSL_KIND(float, kFloat)
template <typename T>
struct identity {
  using type = T;
};
template <typename T>
using given = typename identity<T>::type;  // not deduced
}  // namespace shim

#define MSL_IS(name, condition)                                          \
  template <typename T>                                                  \
  struct name : bool_constant<(shim::kind<shim::bare<T>> condition)> {}; \
  template <typename T>                                                  \
  constexpr __constant bool name##_v = name<T>::value;
MSL_IS(is_integral, == shim::kSigned || shim::kind<shim::bare<T>> == shim::kUnsigned)
MSL_IS(is_floating_point, == shim::kFloat)
MSL_IS(is_arithmetic, != shim::kNone)
MSL_IS(is_unsigned, == shim::kUnsigned)
MSL_IS(is_signed, == shim::kSigned || shim::kind<shim::bare<T>> == shim::kFloat)

}  // namespace metal
