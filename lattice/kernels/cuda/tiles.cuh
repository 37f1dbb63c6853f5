// tiles.metal for CUDA: the same functions on tensor cores of 16-bit types, m16n8k8. float32 has no
// exact matrix unit there, so its products are plain.
//
// One 8 x 8 block of sums is two numbers per lane: row lane / 4, columns 2 (lane % 4) + {0, 1}.
// Two blocks below each other are the 16 x 8 result of one mma.sync.
#pragma once

#include "lattice/kernels/metal/tile_loads.metal"

namespace lattice {
using namespace metal;

struct Sums {
  float v[2];
};

template <int kCount>
METAL_FUNC void clear(Sums* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i].v[0] = sums[i].v[1] = 0.0f;
}

METAL_FUNC int block_row() { return int(threadIdx.y % 32 / 4); }
METAL_FUNC int block_column() { return int(threadIdx.y % 4) * 2; }

// c (16 x 8) += a (16 x 8) b (8 x 8). The PTX manual numbers the fragments. A lane holds a of row
// lane / 4 and of 8 rows below, and b of column lane / 4. A word holds two neighbors along the sum.
METAL_FUNC void mma(float* c, uint a0, uint a1, uint b, const __half*) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
METAL_FUNC void mma(float* c, uint a0, uint a1, uint b, const __nv_bfloat16*) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

template <typename T>
METAL_FUNC uint pair(T low, T high) {
  return uint(as_type<ushort>(low)) | uint(as_type<ushort>(high)) << 16;
}

// As in tiles.metal.
template <int kRows, int kColumns, bool kTurned, typename T>
METAL_FUNC void multiply(Sums* sums, const T* a, int a_stride, const T* b, int b_stride) {
  static_assert(kRows % 2 == 0, "two blocks are one matrix of 16 rows");
  const int row = block_row(), column = block_column();
  uint left[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = 8 * r + row;
    left[r] = kTurned ? pair(a[column * a_stride + i], a[(column + 1) * a_stride + i])
                      : pair(a[i * a_stride + column], a[i * a_stride + column + 1]);
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const uint right =
        pair(b[column * b_stride + 8 * j + row], b[(column + 1) * b_stride + 8 * j + row]);
#pragma unroll
    for (int r = 0; r < kRows; r += 2) {
      Sums &top = sums[r * kColumns + j], &low = sums[(r + 1) * kColumns + j];
      float c[4] = {top.v[0], top.v[1], low.v[0], low.v[1]};
      mma(c, left[r], left[r + 1], right, (const T*)nullptr);
      top.v[0] = c[0], top.v[1] = c[1], low.v[0] = c[2], low.v[1] = c[3];
    }
  }
}

template <int kRows, int kColumns, bool kTurned>
METAL_FUNC void multiply(Sums* sums, const float* a, int a_stride, const float* b, int b_stride) {
  const int row = block_row(), column = block_column();
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float left[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      left[r] = kTurned ? a[c * a_stride + 8 * r + row] : a[(8 * r + row) * a_stride + c];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float b0 = b[c * b_stride + 8 * j + column], b1 = b[c * b_stride + 8 * j + column + 1];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Sums& sum = sums[r * kColumns + j];
        sum.v[0] = fmaf(left[r], b0, sum.v[0]);
        sum.v[1] = fmaf(left[r], b1, sum.v[1]);
      }
    }
  }
}

// As in tiles.metal; a lane knows its sums, so the strip is not used.
template <int kRows, int kColumns, typename To>
METAL_FUNC void put_sums(const Sums* sums, float*, To to, int row, int column, uint) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const Sums sum = sums[r * kColumns + j];
      const int i = row + 8 * r + block_row(), m = column + 8 * j + block_column();
      to.put(i, m, sum.v[0]);
      to.put(i, m + 1, sum.v[1]);
    }
  }
}

}  // namespace lattice
