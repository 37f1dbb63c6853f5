// Products of tiles with 8 x 8 simdgroup matrices, and how tiles get into threadgroup memory;
// shared by the topics of the bilinear family. No topic of its own.
//
// Tiles lie in threadgroup memory as their dtype T; sums are float32. A tile's rows are `padded` so
// that the 8 rows of a matrix start in different memory banks. Arrays of the kernel may be in
// `device` or, when they are small, in `constant` memory: pointer types are template parameters
// everywhere.
#pragma once

#include <metal_simdgroup>
#include <metal_simdgroup_matrix>

#include "lattice/kernels/metal/vectors.metal"

namespace lattice {
using namespace metal;

using Sums = simdgroup_matrix<float, 8, 8>;

// Elements from one row of a tile to the next.
template <typename T>
METAL_FUNC constexpr int padded(int columns) {
  return columns + 16 / int(sizeof(T));
}

// What one thread moves at a time: 8 neighboring channels of a row. Rows of tiles begin at
// multiples of 16 bytes.
template <typename T>
struct alignas(16) Eight {
  T v[8];
};
// p[from .. from + n) as V, then zeros. kWhole: n is at least 8, or at most 0.
template <bool kWhole, typename V, typename P>
METAL_FUNC Eight<V> load_eight(P p, size_t from, int n) {
  Eight<V> result;
  if (kWhole && n > 0) {
    const auto found = values_at<8>(p + from);
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) result.v[j] = V(found.v[j]);
  } else {
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) result.v[j] = !kWhole && j < n ? V(p[from + size_t(j)]) : V(0);
  }
  return result;
}

template <typename V>
METAL_FUNC void store_eight(threadgroup V* to, Eight<V> values) {
  *(threadgroup Eight<V>*)to = values;
}

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
  constexpr int kWide = kColumns < 4 ? kColumns : 4;  // matrices side by side in the strip
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
