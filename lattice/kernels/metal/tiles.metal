// Products of tiles with 8 x 8 simdgroup matrices; shared by the topics of the bilinear family. Not
// a topic of its own. kernels/cuda/tiles.cuh has the same functions for CUDA.
//
// Tiles lie in threadgroup memory as their dtype T; sums are float32.
#pragma once

#include <metal_simdgroup>
#include <metal_simdgroup_matrix>

#include "lattice/kernels/metal/tile_loads.metal"

namespace lattice {
using namespace metal;

using Sums = simdgroup_matrix<float, 8, 8>;

template <int kCount>
METAL_FUNC void clear(thread Sums* sums) {
#pragma clang loop unroll(full)
  for (int i = 0; i < kCount; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// Adds to sums[r * kColumns + j] the product of a (8 kRows x 8) and b (8 x 8 kColumns). kTurned:
// memory holds the transpose of a.
template <int kRows, int kColumns, bool kTurned, typename T>
METAL_FUNC void multiply(thread Sums* sums, const threadgroup T* a, int a_stride,
                         const threadgroup T* b, int b_stride) {
  simdgroup_matrix<T, 8, 8> left[kRows], right;
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r)
    simdgroup_load(left[r], a + (kTurned ? 8 * r : 8 * r * a_stride), ulong(a_stride), ulong2(0, 0),
                   kTurned);
#pragma clang loop unroll(full)
  for (int j = 0; j < kColumns; ++j) {
    simdgroup_load(right, b + 8 * j, ulong(b_stride));
#pragma clang loop unroll(full)
    for (int r = 0; r < kRows; ++r)
      simdgroup_multiply_accumulate(sums[r * kColumns + j], left[r], right, sums[r * kColumns + j]);
  }
}

// Hands every element of the 8 kRows x 8 kColumns sums of this simdgroup to to.put(row, column,
// value). The values pass through `strip`, 8 x 32 floats of threadgroup memory that only this
// simdgroup uses. Lanes are neighboring columns.
template <int kRows, int kColumns, typename To>
METAL_FUNC void put_sums(thread Sums* sums, threadgroup float* strip, To to, int row, int column,
                         uint lane) {
  // Matrices side by side in the strip.
  constexpr int kWide = kColumns % 4 == 0 ? 4 : kColumns % 2 == 0 ? 2 : 1;
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r) {
#pragma clang loop unroll(full)
    for (int j = 0; j < kColumns; j += kWide) {
#pragma clang loop unroll(full)
      for (int i = 0; i < kWide; ++i)
        simdgroup_store(sums[r * kColumns + j + i], strip + 8 * i, 8 * kWide);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = int(lane); i < 64 * kWide; i += 32)
        to.put(row + 8 * r + i / (8 * kWide), column + 8 * j + i % (8 * kWide), strip[i]);
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

}  // namespace lattice
