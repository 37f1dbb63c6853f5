// Attention over ragged segments. A group of 8 simdgroups computes 32 queries of one head against
// all keys of their segment. It takes 32 keys at a time, with a running maximum and sum per query.
//
//   out[i, h, :] = sum_j P[i, j] v[j, g, :]     P[i, j] = exp(L[i, j] - lse[i, h])
//   L[i, j] = scale <q[i, h, :], k[j, g, :]> + bias(h, i, j)
//
// A lane owns one key of a tile for the logits and every 32nd channel for the sums; a simdgroup
// owns 4 queries. Sums are float32, by ascending channel and key; results are rounded once. A query
// that sees no key gives 0 and the log-sum-exp +infinity. Arrays that a template argument switches
// off are not read, so any pointer may stand for them.
#pragma once

#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/portable/attention_sizes.h"

namespace lattice {
using namespace metal;

constant constexpr int kSpan = 32;              // queries and keys of a tile, lanes of a simdgroup
constant constexpr int kSpanPitch = kSpan + 4;  // rows of a tile start at multiples of 16 bytes
constant constexpr int kOwn = 4;                // queries of one simdgroup
constant constexpr int kAttendThreads = 256;

enum AttendBias { kNoBias, kPairBias, kAxesBias, kJointBias };

// Rows of queries, keys and values: (rows, heads, size) each.
template <typename Q, typename K, typename V>
struct AttendRows {
  Q q;
  K k;
  V v;
};
template <typename Q, typename K, typename V>
METAL_FUNC AttendRows<Q, K, V> attend_rows(Q q, K k, V v) {
  return {q, k, v};
}

// What is added to a logit, and which logits count. Positions are read with a table only.
template <typename B, typename P, typename R, typename M>
struct AttendTerms {
  B bias;
  P of_queries;
  R of_keys;
  M mask;
};
template <typename B, typename P, typename R, typename M>
METAL_FUNC AttendTerms<B, P, R, M> attend_terms(B bias, P of_queries, R of_keys, M mask) {
  return {bias, of_queries, of_keys, mask};
}

// The rows of one segment: queries and keys, and the pairs before it.
struct Segment {
  int q_first, n_q, k_first, n_k, pair0;
  int q_end() const thread { return q_first + n_q; }
  int k_end() const thread { return k_first + n_k; }
};

//   blocks (n, 2)  segment and first row of a group, counted in the segment
//   pairs          pairs of rows before each segment
template <typename I, typename J, typename N, typename W>
struct AttendSegments {
  I q_offsets;
  J k_offsets;
  N pairs;
  W blocks;
  Segment of(uint block) const thread {
    const int s = blocks[2 * block];
    Segment found;
    found.q_first = q_offsets[s];
    found.n_q = int(q_offsets[s + 1]) - found.q_first;
    found.k_first = k_offsets[s];
    found.n_k = int(k_offsets[s + 1]) - found.k_first;
    found.pair0 = pairs[s];
    return found;
  }
  int first_row(uint block) const thread { return blocks[2 * block + 1]; }
};
template <typename I, typename J, typename N, typename W>
METAL_FUNC AttendSegments<I, J, N, W> attend_segments(I q_offsets, J k_offsets, N pairs, W blocks) {
  return {q_offsets, k_offsets, pairs, blocks};
}

// Tiles of a group.
struct AttendMemory {
  threadgroup float* left;
  threadgroup float* right;
  threadgroup float* weights;
};

// A tile is declared in blocks of 16 bytes, so that four values are one access.
METAL_FUNC threadgroup float* floats(threadgroup float4* tile) { return (threadgroup float*)tile; }

// bias(h, i, j) from the table; i and j are rows of the positions.
template <bool kJoint, typename Terms>
METAL_FUNC float table_bias(Terms terms, AttentionSizes sizes, int head, int i, int j) {
  const int axes = sizes.axes;
  int entry = 0, first = head * sizes.entries;
  float sum = 0.0f;
  for (int a = 0; a < axes; ++a) {
    const int bound = sizes.bound[a];
    const int away = terms.of_queries[i * axes + a] - terms.of_keys[j * axes + a];
    const int at = min(max(away, -bound), bound) + bound;
    entry = entry * (2 * bound + 1) + at;
    if (!kJoint) sum += float(terms.bias[first + at]);
    if (!kJoint) first += 2 * bound + 1;
  }
  return kJoint ? float(terms.bias[first + entry]) : sum;
}

// Rows [first, last) of one head of x (rows, heads, size).
struct HeadRows {
  int first, last, heads, head;
};

// To tile: 32 rows and channels [c0, c0 + 32), times factor. What is not there is 0. All threads of
// a group take part.
template <typename X>
METAL_FUNC void read_tile(threadgroup float* tile, X x, HeadRows rows, int size, int c0,
                          float factor, int thread_id) {
  for (int t = thread_id; t < kSpan * kSpan; t += kAttendThreads) {
    const int r = t / kSpan, c = t % kSpan;
    const bool there = rows.first + r < rows.last && c0 + c < size;
    const size_t row = size_t(rows.first + r) * size_t(rows.heads) + size_t(rows.head);
    tile[r * kSpanPitch + c] =
        there ? factor * float(x[row * size_t(size) + size_t(c0 + c)]) : 0.0f;
  }
}

// Adds to sums[r] the products of row r of `left` with row `lane` of `right`: 32 channels.
METAL_FUNC void add_products(thread float* sums, threadgroup float* left, threadgroup float* right,
                             int lane) {
  for (int c = 0; c < kSpan; c += 4) {
    const float4 b = *(threadgroup float4*)(right + lane * kSpanPitch + c);
#pragma clang loop unroll(full)
    for (int r = 0; r < kOwn; ++r) {
      const float4 a = *(threadgroup float4*)(left + r * kSpanPitch + c);
      sums[r] += a.x * b.x;
      sums[r] += a.y * b.y;
      sums[r] += a.z * b.z;
      sums[r] += a.w * b.w;
    }
  }
}

// Adds to sums[r * kParts] the products of row r of `weights` with column `lane` of `right`.
template <int kParts>
METAL_FUNC void add_columns(thread float* sums, threadgroup float* weights,
                            threadgroup float* right, int lane) {
  for (int t = 0; t < kSpan; t += 4) {
    threadgroup float* b = right + t * kSpanPitch + lane;
    const float4 column = float4(b[0], b[kSpanPitch], b[2 * kSpanPitch], b[3 * kSpanPitch]);
#pragma clang loop unroll(full)
    for (int r = 0; r < kOwn; ++r) {
      const float4 w = *(threadgroup float4*)(weights + r * kSpanPitch + t);
      sums[r * kParts] += w.x * column.x;
      sums[r * kParts] += w.y * column.y;
      sums[r * kParts] += w.z * column.z;
      sums[r * kParts] += w.w * column.w;
    }
  }
}

// Place of the pair (i, j) in a bias of pairs.
METAL_FUNC size_t pair_at(Segment z, int heads, int head, int i, int j) {
  return size_t(heads) * size_t(z.pair0) +
         (size_t(head) * size_t(z.n_q) + size_t(i)) * size_t(z.n_k) + size_t(j);
}

// The logit x of the pair (i, j), rows counted in the segment, with bias and masks.
template <int kBias, bool kMask, bool kCausal, typename Terms>
METAL_FUNC float finish_logit(float x, Segment z, Terms terms, AttentionSizes sizes, int head,
                              int i, int j) {
  constexpr bool kJoint = kBias == kJointBias;
  bool seen = i < z.n_q && j < z.n_k && (!kCausal || j <= i + z.n_k - z.n_q);
  if (seen && kMask)
    seen = bool(terms.mask[size_t(z.pair0) + size_t(i) * size_t(z.n_k) + size_t(j)]);
  if (seen && kBias == kPairBias) x += float(terms.bias[pair_at(z, sizes.heads, head, i, j)]);
  if (seen && kBias > kPairBias)
    x += table_bias<kJoint>(terms, sizes, head, z.q_first + i, z.k_first + j);
  return seen ? x : -INFINITY;
}

// One forward tile.
//
//   place.group    (0, block, head)
//   kParts         ceil(size / 32)
template <int kParts, int kBias, bool kMask, bool kCausal, typename Out, typename Rows,
          typename Terms, typename Segments>
METAL_FUNC void attention_tile(device Out* out, device float* lse, Rows in, Terms terms,
                               Segments segments, AttentionSizes sizes, AttendMemory memory,
                               ThreadPlace place) {
  const int heads = sizes.heads, kv_heads = sizes.key_heads, size = sizes.head_size;
  const int head = int(place.group.z), kv_head = head / (heads / kv_heads), at = int(place.lane),
            own = int(place.simdgroup) * kOwn, id = int(place.id);
  const Segment z = segments.of(place.group.y);
  const int q0 = segments.first_row(place.group.y);
  const HeadRows queries = {z.q_first + q0, z.q_end(), heads, head};
  const int n_seen = kCausal ? min(q0 + kSpan, z.n_q) + z.n_k - z.n_q : z.n_k;
  float top[kOwn], total[kOwn], sum[kOwn * kParts];
  for (int r = 0; r < kOwn; ++r) {
    top[r] = -INFINITY;
    total[r] = 0.0f;
  }
  for (int i = 0; i < kOwn * kParts; ++i) sum[i] = 0.0f;
  for (int k0 = 0; k0 < n_seen; k0 += kSpan) {
    const HeadRows keys = {z.k_first + k0, z.k_end(), kv_heads, kv_head};
    float logit[kOwn], keep[kOwn];
    for (int r = 0; r < kOwn; ++r) logit[r] = 0.0f;
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (kParts > 1 || k0 == 0)  // a single part stays
        read_tile(memory.left, in.q, queries, size, part * kSpan, sizes.scale, id);
      read_tile(memory.right, in.k, keys, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(logit, memory.left + own * kSpanPitch, memory.right, at);
    }
    for (int r = 0; r < kOwn; ++r) {
      const float x = finish_logit<kBias, kMask, kCausal>(logit[r], z, terms, sizes, head,
                                                          q0 + own + r, k0 + at);
      const float next = max(top[r], simd_max(x)), base = next == -INFINITY ? 0.0f : next;
      const float p = x == -INFINITY ? 0.0f : exp(x - base);
      keep[r] = top[r] == -INFINITY ? 0.0f : exp(top[r] - base);
      total[r] = total[r] * keep[r] + simd_sum(p);
      top[r] = next;
      memory.weights[(own + r) * kSpanPitch + at] = p;
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(memory.right, in.v, keys, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int r = 0; r < kOwn; ++r) sum[r * kParts + part] *= keep[r];
      add_columns<kParts>(sum + part, memory.weights + own * kSpanPitch, memory.right, at);
    }
  }
  for (int r = 0; r < kOwn; ++r) {
    const int i = q0 + own + r;
    if (i >= z.n_q) continue;
    const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
    const float factor = total[r] == 0.0f ? 0.0f : 1.0f / total[r];
    if (at == 0) lse[row] = total[r] == 0.0f ? INFINITY : top[r] + log(total[r]);
    for (int part = 0; part < kParts; ++part)
      if (part * kSpan + at < size)
        out[row * size_t(size) + size_t(part * kSpan + at)] =
            static_cast<Out>(sum[r * kParts + part] * factor);
  }
}

}  // namespace lattice
