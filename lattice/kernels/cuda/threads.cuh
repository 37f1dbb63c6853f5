// Cooperation of threads: barriers, values of other lanes, atomics.
//
// Sums over a simdgroup add pairs of lanes 16, 8, 4, 2 and 1 apart: the order is fixed, and every
// lane has the same bits.
#pragma once

#include "lattice/kernels/cuda/words.cuh"

namespace metal {

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
METAL_FUNC void threadgroup_barrier(mem_flags) { __syncthreads(); }
METAL_FUNC void simdgroup_barrier(mem_flags) { __syncwarp(); }

template <typename T>
METAL_FUNC T simd_shuffle(T x, ushort lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
template <typename T>
METAL_FUNC T simd_shuffle_xor(T x, ushort mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <typename T>
METAL_FUNC T simd_shuffle_down(T x, ushort by) {
  return __shfl_down_sync(0xffffffffu, x, by);
}
template <typename T>
METAL_FUNC T simd_shuffle_up(T x, ushort by) {
  return __shfl_up_sync(0xffffffffu, x, by);
}
template <typename T>
METAL_FUNC T simd_broadcast(T x, ushort lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
#define LATTICE_OVER_LANES(name, expression) \
  template <typename T>                      \
  METAL_FUNC T name(T a) {                   \
    for (int d = 16; d; d /= 2) {            \
      const T b = simd_shuffle_xor(a, d);    \
      a = expression;                        \
    }                                        \
    return a;                                \
  }
LATTICE_OVER_LANES(simd_sum, a + b)
LATTICE_OVER_LANES(simd_max, max(a, b))
LATTICE_OVER_LANES(simd_min, min(a, b))
LATTICE_OVER_LANES(simd_or, a | b)
LATTICE_OVER_LANES(simd_and, a& b)
#undef LATTICE_OVER_LANES
METAL_FUNC bool simd_any(bool b) { return __any_sync(0xffffffffu, b) != 0; }
METAL_FUNC bool simd_all(bool b) { return __all_sync(0xffffffffu, b) != 0; }

template <typename T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
enum memory_order { memory_order_relaxed };
template <typename T>
METAL_FUNC bool atomic_compare_exchange_weak_explicit(atomic<T>* p, T* expected, T desired,
                                                      memory_order, memory_order) {
  const T want = *expected;
  *expected = atomicCAS(&p->value, want, desired);
  return *expected == want;
}
template <typename T>
METAL_FUNC T atomic_fetch_min_explicit(atomic<T>* p, T v, memory_order) {
  return atomicMin(&p->value, v);
}
template <typename T>
METAL_FUNC T atomic_fetch_max_explicit(atomic<T>* p, T v, memory_order) {
  return atomicMax(&p->value, v);
}
template <typename T>
METAL_FUNC T atomic_fetch_add_explicit(atomic<T>* p, T v, memory_order) {
  return atomicAdd(&p->value, v);
}
template <typename T>
METAL_FUNC T atomic_fetch_or_explicit(atomic<T>* p, T v, memory_order) {
  return atomicOr(&p->value, v);
}

}  // namespace metal
