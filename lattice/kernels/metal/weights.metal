// W[k][g][c][m] of the bilinear family, one value at a time: dense, or codes that are expanded as
// they are used.
#pragma once

namespace lattice {
using namespace metal;

// Any layout whose output channels of a group lie side by side.
template <typename T, typename P>
struct DenseWeight {
  P data;
  long stride_k;
  int stride_g, stride_c;
  T at(int k, int g, int c, int m) const thread {
    return data[k * stride_k + g * stride_g + c * stride_c + m];
  }
};

// sizes from 5 on: stride_k, stride_g, stride_c.
template <typename T, typename P, typename S>
METAL_FUNC DenseWeight<T, P> dense_weight(P data, S sizes) {
  return {data, long(sizes[5]), sizes[6], sizes[7]};
}

// T(scale * code + bias of the code's group), as kernels/cpu/features/packed.h says. A word holds
// 32 / kBits input channels of one output channel, the first in the lowest bits. A scale of 16 bits
// times a code is exact in float32, so that a fused multiply-add has the same bits. With float32
// scales the last bit may differ. kTurned: the weight is W^T of each group.
template <typename T, int kBits, bool kTurned, typename C, typename A, typename B>
struct PackedWeight {
  C codes;
  A scales;
  B biases;
  int group_size, n_words, n_groups, out_channels, rows;
  bool one_offset;  // (1, out_channels, words); else (n_k, words, out_channels)
  // Place of word or group i of n, of output channel m.
  size_t place(int k, int m, int i, int n) const thread {
    return one_offset ? size_t(m) * size_t(n) + size_t(i)
                      : (size_t(k) * size_t(n) + size_t(i)) * size_t(out_channels) + size_t(m);
  }
  T at(int k, int g, int row, int column) const thread {
    const int c = kTurned ? column : row, m = g * rows + (kTurned ? row : column);
    const uint word = codes[place(k, m, c * kBits / 32, n_words)];
    const uint code = word >> uint(c * kBits % 32) & ((1u << kBits) - 1u);
    const size_t group = place(k, m, c / group_size, n_groups);
    return T(float(scales[group]) * float(code) + float(biases[group]));
  }
};

// sizes from 5 on: codes that share a scale.
template <typename T, int kBits, bool kTurned, typename C, typename A, typename B, typename S>
METAL_FUNC PackedWeight<T, kBits, kTurned, C, A, B> packed_weight(C codes, A scales, B biases,
                                                                  S sizes) {
  const int in = kTurned ? sizes[4] : sizes[3], out = kTurned ? sizes[3] : sizes[4],
            group_size = sizes[5];
  const int n_groups = (in + group_size - 1) / group_size;
  return {codes,    scales,         biases, group_size,   n_groups * group_size * kBits / 32,
          n_groups, sizes[2] * out, out,    sizes[1] == 1};
}

}  // namespace lattice
