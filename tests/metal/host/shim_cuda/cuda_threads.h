// Threads of a block: places, barriers, shuffles, atomics and the one PTX instruction of the
// kernels, on the runtime of the Metal host. A warp's lanes do not run in step.
#pragma once

#include "cuda_half.h"

extern "C" {
void msl_threadgroup_barrier(uint32_t flags, uint32_t site);
void msl_simdgroup_barrier(uint32_t flags, uint32_t site);
uint32_t msl_exchange(size_t mine, uint32_t size, size_t all, uint32_t site);
uint32_t msl_lane();
uint32_t msl_place(uint32_t number);
void msl_atomic_access(size_t address, uint32_t size, uint32_t writes);
void msl_count_matrix(uint32_t flop);
}
#define MSL_SITE \
  uint32_t msl_site = (uint32_t(__builtin_LINE()) << 10 | (uint32_t(__builtin_COLUMN()) & 1023u))

struct cuda_dim3 {
  uint32_t x, y, z;
};
// Numbers of runtime/launch.h, Place: the thread in its group, the group in the grid.
MSL_UNSEEN inline cuda_dim3 cuda_dim(uint32_t first) {
  return {msl_place(first), msl_place(first + 1), msl_place(first + 2)};
}
#define threadIdx cuda_dim(3)
#define blockIdx cuda_dim(6)

constexpr uint32_t kAllMemory = 3;  // a barrier of CUDA orders device and shared memory
inline void __syncthreads(MSL_SITE) { msl_threadgroup_barrier(kAllMemory, msl_site); }
inline void __syncwarp(unsigned = ~0u, MSL_SITE) { msl_simdgroup_barrier(kAllMemory, msl_site); }

template <typename T>
MSL_UNSEEN inline T cuda_pick(T x, uint32_t lane, uint32_t site) {
  T all[32];
  msl_exchange((size_t)&x, sizeof(T), (size_t)all, site);
  return all[lane < 32 ? lane : msl_lane()];
}
template <typename T>
inline T __shfl_sync(unsigned, T x, int lane, MSL_SITE) {
  return cuda_pick(x, uint32_t(lane) & 31u, msl_site);
}
template <typename T>
inline T __shfl_xor_sync(unsigned, T x, int mask, MSL_SITE) {
  return cuda_pick(x, msl_lane() ^ uint32_t(mask), msl_site);
}
template <typename T>
inline T __shfl_down_sync(unsigned, T x, unsigned by, MSL_SITE) {
  return cuda_pick(x, msl_lane() + by, msl_site);
}
template <typename T>
inline T __shfl_up_sync(unsigned, T x, unsigned by, MSL_SITE) {
  return cuda_pick(x, msl_lane() - by, msl_site);
}
MSL_UNSEEN inline unsigned __ballot_sync(unsigned, int b, MSL_SITE) {
  int all[32];
  unsigned bits = 0;
  msl_exchange((size_t)&b, sizeof(b), (size_t)all, msl_site);
  for (int i = 0; i < 32; ++i) bits |= unsigned(all[i] != 0) << i;
  return bits;
}
inline int __any_sync(unsigned m, int b, MSL_SITE) { return __ballot_sync(m, b, msl_site) != 0; }
inline int __all_sync(unsigned m, int b, MSL_SITE) { return __ballot_sync(m, b, msl_site) == ~0u; }

#define CUDA_ATOMIC(name, next)                  \
  template <typename T>                          \
  MSL_UNSEEN inline T name(T* at, T v) {         \
    msl_atomic_access((size_t)at, sizeof(T), 1); \
    const T r = *at;                             \
    *at = next;                                  \
    return r;                                    \
  }
CUDA_ATOMIC(atomicMin, v < r ? v : r)
CUDA_ATOMIC(atomicMax, r < v ? v : r)
CUDA_ATOMIC(atomicAdd, r + v)
CUDA_ATOMIC(atomicOr, r | v)
template <typename T>
MSL_UNSEEN inline T atomicCAS(T* at, T expected, T v) {
  msl_atomic_access((size_t)at, sizeof(T), 1);
  const T r = *at;
  if (r == expected) *at = v;
  return r;
}

MSL_UNSEEN inline float cuda_half_of(uint32_t word, int i, __half*) {
  return (float)__builtin_bit_cast(_Float16, uint16_t(word >> 16 * i));
}
MSL_UNSEEN inline float cuda_half_of(uint32_t word, int i, __nv_bfloat16*) {
  return __builtin_bit_cast(float, (word >> 16 * i) << 16);
}
// mma.sync.aligned.m16n8k8.row.col.f32.T.T.f32 by the fragments of the PTX manual (9.7.14,
// "Matrix Fragments for mma.m16n8k8"), with group = lane / 4 and t = lane % 4:
//   a_i  row = group, and group + 8 for the second word; column = 2 t + i
//   b_i  row = 2 t + i; column = group
//   c_i  row = group, and group + 8 for i >= 2; column = 2 t + i % 2
template <typename T>
MSL_UNSEEN inline void cuda_mma_m16n8k8(float& c0, float& c1, float& c2, float& c3, uint32_t a0,
                                        uint32_t a1, uint32_t b, MSL_SITE) {
  struct Words {
    uint32_t a[2], b;
  } mine = {{a0, a1}, b}, all[32];
  msl_exchange((size_t)&mine, sizeof(mine), (size_t)all, msl_site);
  msl_count_matrix(16 * 8 * 8 * 2 / 32);
  const uint32_t group = msl_lane() / 4, t = msl_lane() % 4;
  float* sums[4] = {&c0, &c1, &c2, &c3};
  for (uint32_t i = 0; i < 4; ++i)
    for (uint32_t k = 0; k < 8; ++k) {
      const float left = cuda_half_of(all[group * 4 + k / 2].a[i / 2], int(k % 2), (T*)nullptr);
      const uint32_t column = 2 * t + i % 2;
      const float right = cuda_half_of(all[column * 4 + k / 2].b, int(k % 2), (T*)nullptr);
      *sums[i] = __builtin_fmaf(left, right, *sums[i]);
    }
}
