// Barriers and atomics. Memory orders other than relaxed do not exist in MSL before 3.2.
#pragma once

#include "traits.h"

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
METAL_FUNC constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) | uint(b));
}
METAL_FUNC constexpr mem_flags operator&(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) & uint(b));
}
METAL_FUNC void threadgroup_barrier(mem_flags f, MSL_SITE) {
  msl_threadgroup_barrier((uint)f, msl_site);
}
METAL_FUNC void simdgroup_barrier(mem_flags f, MSL_SITE) {
  msl_simdgroup_barrier((uint)f, msl_site);
}

enum memory_order { memory_order_relaxed };

template <typename T>
struct atomic {
  static_assert(is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, bool> ||
                    is_same_v<T, float> || is_same_v<T, ulong>,
                "metal::atomic<T>: T must be int, uint, bool, float or ulong");
  T msl_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

namespace shim {
template <typename T>
constexpr __constant bool whole = is_same_v<T, int> || is_same_v<T, uint>;
}  // namespace shim

// `any`: types that can be loaded and stored, `sums`: that can be added. Floats live in device
// memory only.
#define MSL_ATOMIC(space, result, name, condition, writes, more, body)             \
  template <typename T, enable_if_t<condition, bool> = true>                       \
  MSL_UNSEEN inline result name(volatile space atomic<T>* at more, memory_order) { \
    msl_atomic_access((size_t)at, sizeof(T), writes);                              \
    space T& value = ((space atomic<T>*)at)->msl_value;                            \
    body                                                                           \
  }
#define MSL_VALUE , shim::given<T> v
#define MSL_FETCH(space, name, condition, next)                                                    \
  MSL_ATOMIC(space, T, atomic_fetch_##name##_explicit, condition, 1, MSL_VALUE, const T r = value; \
             value = next; return r;)
#define MSL_ATOMICS(space, any, sums)                                                             \
  MSL_ATOMIC(space, void, atomic_store_explicit, any, 1, MSL_VALUE, value = v;)                   \
  MSL_ATOMIC(space, T, atomic_exchange_explicit, any, 1, MSL_VALUE, const T r = value; value = v; \
             return r;)                                                                           \
  MSL_FETCH(space, add, sums, r + v)                                                              \
  MSL_FETCH(space, sub, sums, r - v)                                                              \
  MSL_FETCH(space, and, shim::whole<T>, r& v)                                                     \
  MSL_FETCH(space, or, shim::whole<T>, r | v)                                                     \
  MSL_FETCH(space, xor, shim::whole<T>, r ^ v)                                                    \
  MSL_FETCH(space, min, shim::whole<T>, v < r ? v : r)                                            \
  MSL_FETCH(space, max, shim::whole<T>, r < v ? v : r)                                            \
  template <typename T, enable_if_t<any, bool> = true>                                            \
  MSL_UNSEEN inline T atomic_load_explicit(const volatile space atomic<T>* at, memory_order) {    \
    msl_atomic_access((size_t)at, sizeof(T), 0);                                                  \
    return ((const space atomic<T>*)at)->msl_value;                                               \
  }                                                                                               \
  template <typename T, enable_if_t<any, bool> = true>                                            \
  MSL_UNSEEN inline bool atomic_compare_exchange_weak_explicit(                                   \
      volatile space atomic<T>* at, thread T* expected, shim::given<T> v, memory_order,           \
      memory_order) {                                                                             \
    msl_atomic_access((size_t)at, sizeof(T), 1);                                                  \
    space T& value = ((space atomic<T>*)at)->msl_value;                                           \
    if (value == *expected && !msl_fails_for_no_reason()) {                                       \
      value = v;                                                                                  \
      return true;                                                                                \
    }                                                                                             \
    *expected = value;                                                                            \
    return false;                                                                                 \
  }
#define MSL_NOT(T0) (!is_same_v<T, T0>)
MSL_ATOMICS(__global, MSL_NOT(ulong), (shim::whole<T> || is_same_v<T, float>))
MSL_ATOMICS(__local, (MSL_NOT(ulong) && MSL_NOT(float)), shim::whole<T>)
// 64 bits: these two, in device memory.
MSL_ATOMIC(__global, void, atomic_min_explicit, (is_same_v<T, ulong>), 1, MSL_VALUE,
           if (v < value) value = v;)
MSL_ATOMIC(__global, void, atomic_max_explicit, (is_same_v<T, ulong>), 1, MSL_VALUE,
           if (value < v) value = v;)

}  // namespace metal
