// Gradients of attention (attention.metal), with P computed again from the saved log-sum-exp.
//
//   dS = P (<g, v> - delta)   dq = scale dS k   dbias = dS   dv = P^T g   dk = scale dS^T q
//
// Tiles are those of the forward pass.
#include "lattice/kernels/metal/attention.metal"

namespace lattice {
using namespace metal;

// What a gradient reads: g like the result, log-sum-exps and delta = <g, out> of (rows, heads).
template <typename G, typename L, typename E>
struct AttendSlopes {
  G g;
  L lse;
  E delta;
};
template <typename G, typename L, typename E>
METAL_FUNC AttendSlopes<G, L, E> attend_slopes(G g, L lse, E delta) {
  return {g, lse, delta};
}

// Results of attention_dq: gradients of the queries, and of a bias of pairs.
template <typename T, typename D>
struct QuerySlopes {
  using Out = T;
  device T* dq;
  D dbias;
};
template <typename T, typename D>
METAL_FUNC QuerySlopes<T, D> query_slopes(device T* dq, D dbias) {
  return {dq, dbias};
}

// dS = P (<g, v> - delta), dq = scale dS k, dbias = dS. Blocks and group as above.
template <int kParts, int kBias, bool kMask, bool kCausal, typename To, typename Rows,
          typename Slopes, typename Terms, typename Segments>
METAL_FUNC void attention_dq(To to, Rows in, Slopes slopes, Terms terms, Segments segments,
                             AttentionSizes sizes, AttendMemory memory, ThreadPlace place) {
  const int heads = sizes.heads, kv_heads = sizes.key_heads, size = sizes.head_size;
  const int head = int(place.group.z), kv_head = head / (heads / kv_heads), at = int(place.lane),
            own = int(place.simdgroup) * kOwn, id = int(place.id);
  const Segment z = segments.of(place.group.y);
  const int q0 = segments.first_row(place.group.y);
  const HeadRows queries = {z.q_first + q0, z.q_end(), heads, head};
  const int n_seen =  // of a bias every pair is written
      kCausal && kBias != kPairBias ? min(q0 + kSpan, z.n_q) + z.n_k - z.n_q : z.n_k;
  float sum[kOwn * kParts];
  for (int i = 0; i < kOwn * kParts; ++i) sum[i] = 0.0f;
  for (int k0 = 0; k0 < n_seen; k0 += kSpan) {
    const HeadRows keys = {z.k_first + k0, z.k_end(), kv_heads, kv_head};
    float logit[kOwn], dp[kOwn];
    for (int r = 0; r < kOwn; ++r) {
      logit[r] = 0.0f;
      dp[r] = 0.0f;
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(memory.left, in.q, queries, size, part * kSpan, sizes.scale, id);
      read_tile(memory.right, in.k, keys, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(logit, memory.left + own * kSpanPitch, memory.right, at);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(memory.left, slopes.g, queries, size, part * kSpan, 1.0f, id);
      read_tile(memory.right, in.v, keys, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(dp, memory.left + own * kSpanPitch, memory.right, at);
    }
    for (int r = 0; r < kOwn; ++r) {
      const int i = q0 + own + r, j = k0 + at;
      const float x = finish_logit<kBias, kMask, kCausal>(logit[r], z, terms, sizes, head, i, j);
      float ds = 0.0f;
      if (i < z.n_q && x != -INFINITY) {
        const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
        ds = exp(x - float(slopes.lse[row])) * (dp[r] - float(slopes.delta[row]));
      }
      memory.weights[(own + r) * kSpanPitch + at] = ds;
      if constexpr (kBias == kPairBias) {
        if (i < z.n_q && j < z.n_k) to.dbias[pair_at(z, heads, head, i, j)] = ds;
      }
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(memory.right, in.k, keys, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_columns<kParts>(sum + part, memory.weights + own * kSpanPitch, memory.right, at);
    }
  }
  for (int r = 0; r < kOwn; ++r) {
    const int i = q0 + own + r;
    const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
    for (int part = 0; part < kParts; ++part)
      if (i < z.n_q && part * kSpan + at < size)
        to.dq[row * size_t(size) + size_t(part * kSpan + at)] =
            static_cast<typename To::Out>(sum[r * kParts + part] * sizes.scale);
  }
}

// Results of attention_dkv.
template <typename T>
struct KeySlopes {
  using Out = T;
  device T* dk;
  device T* dv;
};
template <typename T>
METAL_FUNC KeySlopes<T> key_slopes(device T* dk, device T* dv) {
  return {dk, dv};
}

// Its tiles: `slopes` holds dS where `weights` holds P.
struct KeyMemory {
  threadgroup float* left;
  threadgroup float* right;
  threadgroup float* weights;
  threadgroup float* slopes;
};

// Gradients of keys and values: dv = P^T g, dk = scale dS^T q.
//
// Sums run over the queries of all heads that share one head of the keys, in order. A simdgroup
// owns 4 keys, a lane one query of a tile. place.group is (0, block of keys, head of the keys).
template <int kParts, int kBias, bool kMask, bool kCausal, typename To, typename Rows,
          typename Slopes, typename Terms, typename Segments>
METAL_FUNC void attention_dkv(To to, Rows in, Slopes slopes, Terms terms, Segments segments,
                              AttentionSizes sizes, KeyMemory memory, ThreadPlace place) {
  const int heads = sizes.heads, kv_heads = sizes.key_heads, size = sizes.head_size;
  const int kv_head = int(place.group.z), shared_by = heads / kv_heads, at = int(place.lane),
            own = int(place.simdgroup) * kOwn, id = int(place.id);
  const Segment z = segments.of(place.group.y);
  const int k0 = segments.first_row(place.group.y);
  const HeadRows keys = {z.k_first + k0, z.k_end(), kv_heads, kv_head};
  float of_k[kOwn * kParts], of_v[kOwn * kParts];
  for (int i = 0; i < kOwn * kParts; ++i) {
    of_k[i] = 0.0f;
    of_v[i] = 0.0f;
  }
  // The first block of queries that see the first key.
  const int first = kCausal ? max(0, k0 - (z.n_k - z.n_q)) / kSpan * kSpan : 0;
  for (int head = kv_head * shared_by; head < (kv_head + 1) * shared_by; ++head)
    for (int q0 = first; q0 < z.n_q; q0 += kSpan) {
      const HeadRows queries = {z.q_first + q0, z.q_end(), heads, head};
      float logit[kOwn], dp[kOwn];
      for (int r = 0; r < kOwn; ++r) {
        logit[r] = 0.0f;
        dp[r] = 0.0f;
      }
      for (int part = 0; part < kParts; ++part) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(memory.left, in.k, keys, size, part * kSpan, 1.0f, id);
        read_tile(memory.right, in.q, queries, size, part * kSpan, sizes.scale, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_products(logit, memory.left + own * kSpanPitch, memory.right, at);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(memory.left, in.v, keys, size, part * kSpan, 1.0f, id);
        read_tile(memory.right, slopes.g, queries, size, part * kSpan, 1.0f, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_products(dp, memory.left + own * kSpanPitch, memory.right, at);
      }
      const int i = q0 + at;
      for (int r = 0; r < kOwn; ++r) {
        const float x =
            finish_logit<kBias, kMask, kCausal>(logit[r], z, terms, sizes, head, i, k0 + own + r);
        float p = 0.0f, ds = 0.0f;
        if (i < z.n_q && x != -INFINITY) {
          const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
          p = exp(x - float(slopes.lse[row]));
          ds = p * (dp[r] - float(slopes.delta[row]));
        }
        memory.weights[(own + r) * kSpanPitch + at] = p;
        memory.slopes[(own + r) * kSpanPitch + at] = ds;
      }
      for (int part = 0; part < kParts; ++part) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(memory.left, slopes.g, queries, size, part * kSpan, 1.0f, id);
        read_tile(memory.right, in.q, queries, size, part * kSpan, sizes.scale, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_columns<kParts>(of_v + part, memory.weights + own * kSpanPitch, memory.left, at);
        add_columns<kParts>(of_k + part, memory.slopes + own * kSpanPitch, memory.right, at);
      }
    }
  for (int r = 0; r < kOwn; ++r) {
    const int j = k0 + own + r;
    const size_t row = size_t(z.k_first + j) * size_t(kv_heads) + size_t(kv_head);
    for (int part = 0; part < kParts; ++part)
      if (j < z.n_k && part * kSpan + at < size) {
        const size_t found = row * size_t(size) + size_t(part * kSpan + at);
        to.dk[found] = static_cast<typename To::Out>(of_k[r * kParts + part]);
        to.dv[found] = static_cast<typename To::Out>(of_v[r * kParts + part]);
      }
  }
}

}  // namespace lattice
