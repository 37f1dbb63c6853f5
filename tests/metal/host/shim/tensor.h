// What <metal_tensor> and <MetalPerformancePrimitives/MetalPerformancePrimitives.h> give on a Mac,
// as far as the kernels use it: tensors on threadgroup memory, matmul2d of one simdgroup, and
// cooperative sums. Which lane holds which sum is the runtime's choice (msl_tensor_layout): GPUs
// differ. The last two elements of a lane are never valid, and new sums are NaN.
#pragma once

#include "vectors.h"

namespace metal {

struct os_log {};  // MLX names it from Metal 3.2 on

template <typename I, int... kSizes>
struct extents {
  static constexpr int size(int i) {
    const int all[] = {kSizes...};
    return all[i];
  }
};
struct tensor_inline {};
struct execution_simdgroup {};
template <typename T, typename E, typename Kind>
struct tensor;
template <typename T, typename E>
struct tensor<__local T, E, tensor_inline> {
  typedef T value_type;
  typedef E extents_type;
  __local T* msl_data;
  tensor(__local T* data, E) : msl_data(data) {}
};

}  // namespace metal

namespace mpp {
namespace tensor_ops {

// An integer in disguise: clang's C++ for OpenCL takes no class types as template arguments.
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  ulong msl_bits;
  constexpr matmul2d_descriptor(int m, int n, int k, bool left, bool right, bool relaxed, mode how)
      : msl_bits((ulong)m | (ulong)n << 12 | (ulong)k << 24 | (ulong)left << 36 |
                 (ulong)right << 37 | (ulong)relaxed << 38 |
                 (ulong)(how == mode::multiply_accumulate) << 39) {}
  constexpr operator ulong() const { return msl_bits; }
};

struct msl_place {
  uint at[2];
  uint operator[](int i) const { return at[i]; }
};

template <int kM, int kN>
struct cooperative_tensor {
  static constexpr __constant int kOwn = kM * kN / 32;
  float msl_values[kOwn + 2];
  uint16_t get_capacity() const thread { return kOwn + 2; }
  bool is_valid_element(uint16_t i) const thread { return i < kOwn; }
  // Column, then row.
  MSL_UNSEEN msl_place get_multidimensional_index(uint16_t i) const thread {
    const uint lane = msl_lane(), layout = msl_tensor_layout();
    uint linear = layout == 0 ? lane * kOwn + i : i * 32 + lane;
    if (layout == 2) linear = (linear * 37 + 11) % (kM * kN);  // 37 and a power of two: one to one
    return msl_place{{linear % kN, linear / kN}};
  }
  thread float& operator[](uint16_t i) thread { return msl_values[i]; }
};

template <ulong kDescriptor, typename Scope>
struct matmul2d {
  static constexpr __constant int m = kDescriptor & 4095, n = kDescriptor >> 12 & 4095,
                                  k = kDescriptor >> 24 & 4095;
  static constexpr __constant bool turned_left = kDescriptor >> 36 & 1,
                                   turned_right = kDescriptor >> 37 & 1,
                                   relaxed = kDescriptor >> 38 & 1, adds = kDescriptor >> 39 & 1;
  static_assert(m % 16 == 0 || n % 16 == 0, "matmul2d: M or N must be a multiple of 16");
  static_assert((m * n & (m * n - 1)) == 0, "the layouts of this shim need powers of two");
  static_assert(metal::is_same_v<Scope, metal::execution_simdgroup>, "only simdgroups are here");
  template <typename L, typename R, typename V>
  MSL_UNSEEN cooperative_tensor<m, n> get_destination_cooperative_tensor() const thread {
    static_assert(metal::is_same_v<V, float>, "only float32 sums are here");
    cooperative_tensor<m, n> sums;
    for (int i = 0; i < cooperative_tensor<m, n>::kOwn + 2; ++i)
      sums.msl_values[i] = __builtin_nanf("");
    return sums;
  }
  template <typename L, typename R>
  void run(thread L& left, thread R& right, thread cooperative_tensor<m, n>& sums,
           MSL_SITE) const thread {
    using LE = typename L::extents_type;
    using RE = typename R::extents_type;
    static_assert(metal::is_same_v<typename L::value_type, typename R::value_type>,
                  "matmul2d: operands of one type");
    static_assert(LE::size(0) == (turned_left ? m : k) && LE::size(1) == (turned_left ? k : m),
                  "matmul2d: left has other extents");
    static_assert(RE::size(0) == (turned_right ? k : n) && RE::size(1) == (turned_right ? n : k),
                  "matmul2d: right has other extents");
    msl_simdgroup_barrier(0, msl_site);  // all lanes take part
    for (uint16_t i = 0; i < cooperative_tensor<m, n>::kOwn; ++i) {
      const msl_place at = sums.get_multidimensional_index(i);
      float sum = adds ? sums.msl_values[i] : 0.0f;
      for (int c = 0; c < k; ++c) {
        const float a = (float)left.msl_data[turned_left ? c * m + at.at[1] : at.at[1] * k + c];
        const float b = (float)right.msl_data[turned_right ? at.at[0] * k + c : c * n + at.at[0]];
        sum = __builtin_fmaf(a, b, sum);
      }
      sums.msl_values[i] = sum;
    }
    msl_count_matrix_flop(2u * m * n * k / 32u);
    msl_simdgroup_barrier(0, msl_site);
  }
};

}  // namespace tensor_ops
}  // namespace mpp
