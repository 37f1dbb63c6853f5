// Attention along edges: a softmax over the edges of each query, without an array of size edges x
// channels.
//
//   out[i, h, :] = sum_e P[e, h] v[rows[e], h, :]      P[e, h] = exp(L[e, h] - lse[i, h])
//   L[e, h] = scale <q[i, h, :], k[rows[e], h, :]> + bias[e, h]      lse[i, h] = log sum_e exp(L)
//
// e runs over offsets[i] .. offsets[i + 1]. Without q and k the bias alone is the logit: grouped
// vector attention (Wu et al. 2022, arXiv:2210.05666). A query without edges, or with logits of
// -infinity only, gives 0 and lse +infinity.
//
// All sums are float32 in an order that depends on sizes only. So any number of threads gives the
// same bits, on every instruction set with a fused multiply-add.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

struct NeighborAttention {
  FloatType storage = FloatType::f32;  // of q, k, v, out and their gradients
  int64_t queries = 0, sources = 0;
  const int32_t* offsets = nullptr;  // queries + 1, from 0
  const int32_t* rows = nullptr;     // (edges,) source of each edge
  int64_t heads = 1, size = 1;       // size: of one head
  float scale = 1;
  const void* q = nullptr;  // (queries, heads, size), or null
  const void* k = nullptr;  // (sources, heads, size), or null with q
  const void* v = nullptr;
  const float* bias = nullptr;  // (edges, heads), or null
};

// out is (queries, heads, size), lse (queries, heads).
void neighbor_attention(const NeighborAttention& a, void* out, float* lse);

// Gradients from g, the cotangent of out. The edges of source j are back_edges[back_offsets[j] ..
// back_offsets[j + 1]]; edge e belongs to query edge_queries[e].
struct NeighborAttentionGradients {
  const void* out = nullptr;
  const float* lse = nullptr;
  const void* g = nullptr;
  const int32_t* back_offsets = nullptr;
  const int32_t* back_edges = nullptr;
  const int32_t* edge_queries = nullptr;
  void* dq = nullptr;  // null without q
  void* dk = nullptr;
  void* dv = nullptr;
  float* dbias = nullptr;  // (edges, heads); null if it is not needed
};
void neighbor_attention_gradients(const NeighborAttention& a, const NeighborAttentionGradients& y);

}  // namespace lattice::cpu
