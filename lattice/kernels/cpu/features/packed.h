// Weights as codes of 4 or 8 bits, expanded one block at a time: the dense weight never exists as a
// whole.
//
//   W[k][c][m] = T(scale[k][m][c / group_size] * code[k][m][c] + bias[k][m][c / group_size])
//
// Product and sum are each rounded to float32, then once to the storage type T. So the expanded
// weight has the bits of the dequantized weight, and a convolution has the bits of the dense route.
// A word of 32 bits holds 32 / bits consecutive input channels of one output channel, the first in
// the lowest bits.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/features/conv.h"

namespace lattice::cpu {

struct PackedWeight final : WeightSource {
  ConvShape shape;  // that the codes are for; its storage is T, and that of scales and biases
  // (1, c_out, words) if n_k is 1, else (n_k, words, c_out).
  const uint32_t* codes = nullptr;
  const void* scales = nullptr;  // the same order, `groups of codes` instead of words
  const void* biases = nullptr;
  int64_t bits = 4;  // 4 or 8
  // Input channels of a convolution group that share a scale: a multiple of 32. Memory holds them
  // rounded up to it.
  int64_t group_size = 64;
  int64_t n_k = 1;
  bool transposed = false;  // the source of W[k]^T, group by group: what the input gradient reads
  void fill(int64_t k, int64_t column, int64_t columns, int64_t width, float* dst) const override;
  bool keep_all() const override { return false; }
};

}  // namespace lattice::cpu
