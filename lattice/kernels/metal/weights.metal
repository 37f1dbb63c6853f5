// W[k][g][c][m] of the bilinear family, one value or 8 neighboring output channels at a time:
// dense, or codes that are expanded as they are used.
#pragma once

#include "lattice/kernels/metal/tiles.metal"
#include "lattice/kernels/portable/conv_sizes.h"

namespace lattice {
using namespace metal;

// Any layout. kMirrored: offsets count from the last one. Without kStrided the output channels of a
// group lie side by side.
template <typename T, bool kMirrored, bool kStrided, typename P>
struct DenseWeight {
  P data;
  long stride_k;
  int stride_g, stride_c, stride_m, last;
  // Where the matrix of offset k and group g begins.
  size_t begin(int k, int g) const thread {
    return size_t((kMirrored ? last - k : k) * stride_k + g * stride_g);
  }
  T at(int k, int g, int c, int m) const thread {
    return data[begin(k, g) + size_t(c * stride_c + (kStrided ? m * stride_m : m))];
  }
  // n channels from m on, then zeros; kWhole as in load_eight.
  template <bool kWhole, typename V>
  METAL_FUNC Eight<V> eight(size_t begin, int, int, int c, int m, int n) const thread {
    Eight<V> result;
    if (!kStrided || stride_m == 1) {
      result = load_eight<kWhole, V>(data, begin + size_t(c * stride_c + m), n);
    } else {
#pragma clang loop unroll(full)
      for (int j = 0; j < 8; ++j)
        result.v[j] = j < n ? V(data[begin + size_t(c * stride_c + (m + j) * stride_m)]) : V(0);
    }
    return result;
  }
};

template <typename T, bool kMirrored, typename P>
METAL_FUNC DenseWeight<T, kMirrored, false, P> dense_weight(P data, ConvSizes sizes) {
  return {data, long(sizes.stride_k), sizes.stride_g, sizes.stride_c, 1, sizes.n_k - 1};
}

// A view (offsets, rows, output channels) with the strides that MLX gives.
template <typename T, bool kMirrored, typename P, typename S>
METAL_FUNC DenseWeight<T, kMirrored, true, P> strided_weight(P data, S strides, ConvSizes sizes) {
  return {
      data,         long(strides[0]), sizes.out * int(strides[2]), int(strides[1]), int(strides[2]),
      sizes.n_k - 1};
}

// T(scale * code + bias of the code's group), as kernels/cpu/features/packed.h says. A word holds
// 32 / kBits input channels of one output channel, the first in the lowest bits. A scale of 16 bits
// times a code is exact in float32, so a fused multiply-add has the same bits. With float32
// scales the last bit may differ. kTurned: the weight is W^T of each group.
template <typename T, int kBits, bool kTurned, bool kMirrored, typename C, typename A, typename B>
struct PackedWeight {
  C codes;
  A scales;
  B biases;
  int group_size, n_words, n_groups, out_channels, rows;
  bool one_offset;  // (1, out_channels, words); else (n_k, words, out_channels)
  int last;
  // Place of word or group i of n, of output channel m.
  size_t place(int k, int m, int i, int n) const thread {
    return one_offset
               ? size_t(m) * size_t(n) + size_t(i)
               : (size_t(kMirrored ? last - k : k) * size_t(n) + size_t(i)) * size_t(out_channels) +
                     size_t(m);
  }
  // The weight whose code is the lowest bits of a word.
  T expand(uint word, float scale, float bias) const thread {
    return T(scale * float(word & ((1u << kBits) - 1u)) + bias);
  }
  T at(int k, int g, int row, int column) const thread {
    const int c = kTurned ? column : row, m = g * rows + (kTurned ? row : column);
    const uint word = codes[place(k, m, c * kBits / 32, n_words)];
    const size_t group = place(k, m, c / group_size, n_groups);
    return expand(word >> uint(c * kBits % 32), float(scales[group]), float(biases[group]));
  }
  size_t begin(int, int) const thread { return 0; }
  // 8 codes lie in one word or two, and share a scale. Beyond the last channel of either side n is
  // 0 or less; then the first codes are read.
  template <typename V>
  METAL_FUNC Eight<V> eight_of_row(int k, int output, int channel, int n) const thread {
    constexpr int kWords = kBits / 4, kCodes = 8 / kWords;
    const int m = n > 0 ? output : 0, c = n > 0 ? channel : 0;
    const size_t group = place(k, m, c / group_size, n_groups);
    const float scale = float(scales[group]), bias = float(biases[group]);
    Eight<V> result;
#pragma clang loop unroll(full)
    for (int i = 0; i < kWords; ++i) {
      const uint word = codes[place(k, m, c * kBits / 32 + i, n_words)];
#pragma clang loop unroll(full)
      for (int j = 0; j < kCodes; ++j) {
        const int at = i * kCodes + j;
        result.v[at] = at < n ? V(expand(word >> uint(j * kBits), scale, bias)) : V(0);
      }
    }
    return result;
  }
  // One code of each of 8 words.
  template <bool kWhole, typename V>
  METAL_FUNC Eight<V> eight_of_column(int k, int m, int c, int n) const thread {
    const size_t word = place(k, m, c * kBits / 32, n_words),
                 group = place(k, m, c / group_size, n_groups);
    const uint shift = uint(c * kBits % 32);
    Eight<V> result;
    if (one_offset) {
#pragma clang loop unroll(full)
      for (int j = 0; j < 8; ++j) {
        const size_t at = group + size_t(j) * size_t(n_groups);
        const uint code = j < n ? uint(codes[word + size_t(j) * size_t(n_words)]) : 0u;
        result.v[j] = j < n ? V(expand(code >> shift, float(scales[at]), float(biases[at]))) : V(0);
      }
    } else {
      const Eight<uint> eight = load_eight<kWhole, uint>(codes, word, n);
      const Eight<float> scale = load_eight<kWhole, float>(scales, group, n),
                         bias = load_eight<kWhole, float>(biases, group, n);
#pragma clang loop unroll(full)
      for (int j = 0; j < 8; ++j)
        result.v[j] = j < n ? V(expand(eight.v[j] >> shift, scale.v[j], bias.v[j])) : V(0);
    }
    return result;
  }
  template <bool kWhole, typename V>
  METAL_FUNC Eight<V> eight(size_t, int k, int g, int row, int column, int n) const thread {
    if (kTurned) return eight_of_row<V>(k, g * rows + row, column, n);
    return eight_of_column<kWhole, V>(k, g * rows + column, row, n);
  }
};

template <typename T, int kBits, bool kTurned, bool kMirrored, typename C, typename A, typename B>
METAL_FUNC PackedWeight<T, kBits, kTurned, kMirrored, C, A, B> packed_weight(C codes, A scales,
                                                                             B biases,
                                                                             ConvSizes sizes) {
  const int in = kTurned ? sizes.out : sizes.in, out = kTurned ? sizes.in : sizes.out,
            group_size = sizes.group_size, n_groups = (in + group_size - 1) / group_size;
  return {codes,
          scales,
          biases,
          group_size,
          n_groups * group_size * kBits / 32,
          n_groups,
          sizes.groups * out,
          out,
          sizes.n_k == 1,
          sizes.n_k - 1};
}

}  // namespace lattice
