// Attention over ragged segments, without an array of lengths squared.
//
//   out[i, h, :] = sum_j P[i, j] v[j, g, :]     P[i, j] = exp(L[i, j] - lse[i, h])
//   L[i, j] = scale <q[i, h, :], k[j, g, :]> + bias(h, i, j)     lse[i, h] = log sum_j exp(L[i, j])
//
// i and j run over the queries and keys of one segment; g = h / (heads / kv_heads). Tiles of keys
// are visited in order with a running maximum and sum ("online softmax": Milakov and Gimelshein
// 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). The backward pass computes P again
// from lse. A query that sees no key, or keys of weight exp(-infinity) only, gives 0 and lse
// +infinity.
//
// All sums are float32 in an order that depends on sizes only, so any number of threads gives the
// same bits. Scratch memory is below 16 MiB per thread for any length.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

inline constexpr int64_t kMaxHeadSize = 256;

// bias(h, i, j) read from a table by relative position p = q_positions[i] - k_positions[j]:
//   joint:  table[h, sum_a stride_a (clip(p_a, -bound_a, bound_a) + bound_a)], row-major strides
//   else:   sum over the axes a of table[h, first_a + clip(p_a, -bound_a, bound_a) + bound_a],
//           where axis a owns 2 bound_a + 1 entries after those of the axes before it
struct PositionTable {
  const float* table = nullptr;  // (heads, size)
  int64_t size = 0;
  int32_t axes = 0;                      // 1 to 3
  int32_t bounds[3] = {0, 0, 0};         // not negative
  const int32_t* q_positions = nullptr;  // (queries, axes); differences fit int32
  const int32_t* k_positions = nullptr;  // (keys, axes)
  bool joint = false;
};

struct Attention {
  FloatType storage = FloatType::f32;  // of q, k, v, out and their gradients
  int64_t segments = 0;
  const int32_t* q_offsets = nullptr;  // segments + 1, ascending from 0
  const int32_t* k_offsets = nullptr;
  int64_t heads = 1, kv_heads = 1, size = 1;  // size: of one head, 1 to kMaxHeadSize
  float scale = 1;
  const void* q = nullptr;  // (queries, heads, size)
  const void* k = nullptr;  // (keys, kv_heads, size)
  const void* v = nullptr;
  const float* bias = nullptr;  // per segment (heads, its queries, its keys), one after the other
  PositionTable positions = {};
  const uint8_t* mask = nullptr;  // per segment (its queries, its keys); 0: not seen
  bool causal = false;            // query i sees keys j <= i + keys - queries
};

// out is like q; lse is (queries, heads).
void attention(const Attention& a, void* out, float* lse);

// Gradients from g, the cotangent of out. dbias and dtable are like bias and table, null where
// there is none.
struct AttentionGradients {
  const void* out = nullptr;
  const float* lse = nullptr;
  const void* g = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* dbias = nullptr;
  float* dtable = nullptr;
};
void attention_gradients(const Attention& a, const AttentionGradients& gradients);

}  // namespace lattice::cpu
