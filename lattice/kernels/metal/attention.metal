// Attention over ragged segments. A group of 8 simdgroups computes 32 queries of one head against
// all keys of their segment. It takes 32 keys at a time, with a running maximum and sum per query.
//
//   out[i, h, :] = sum_j P[i, j] v[j, g, :]     P[i, j] = exp(L[i, j] - lse[i, h])
//   L[i, j] = scale <q[i, h, :], k[j, g, :]> + bias(h, i, j)
//
// A lane owns one key of a tile for the logits and every 32nd channel for the sums; a simdgroup
// owns 4 queries. Gradients compute P again from lse. Sums are float32, by ascending channel and
// key; results are rounded once. A query that sees no key gives 0 and the log-sum-exp +infinity.
// What a template argument switches off is not read: any pointer will do.

namespace lattice {
using namespace metal;

constant constexpr int kSpan = 32;              // queries and keys of a tile, lanes of a simdgroup
constant constexpr int kSpanPitch = kSpan + 1;  // rows of a tile start in different banks
constant constexpr int kOwn = 4;                // queries of one simdgroup
constant constexpr int kAttendThreads = 256;

enum AttendBias { kNoBias, kPairBias, kAxesBias, kJointBias };
// Entries of `sizes`.
enum AttendSizes { kHeads, kKeyHeads, kHeadSize, kAxes, kBounds, kEntries = 7 };

// bias(h, i, j) from the table; i and j are rows of the positions.
template <bool kJoint, typename Table, typename P, typename R, typename Sizes>
METAL_FUNC float table_bias(Table table, P of_queries, R of_keys, Sizes sizes, int head, int i,
                            int j) {
  const int axes = sizes[kAxes];
  int entry = 0, first = head * sizes[kEntries];
  float sum = 0.0f;
  for (int a = 0; a < axes; ++a) {
    const int bound = sizes[kBounds + a];
    const int away = of_queries[i * axes + a] - of_keys[j * axes + a];
    const int at = min(max(away, -bound), bound) + bound;
    entry = entry * (2 * bound + 1) + at;
    if (!kJoint) sum += float(table[first + at]);
    if (!kJoint) first += 2 * bound + 1;
  }
  return kJoint ? float(table[first + entry]) : sum;
}

// To tile: rows [first, first + 32) below `last` and channels [c0, c0 + 32) of one head, times
// factor. x is (rows, heads, size). What is not there is 0. All threads of a group take part.
template <typename X>
METAL_FUNC void read_tile(threadgroup float* tile, X x, int first, int last, int heads, int head,
                          int size, int c0, float factor, int thread_id) {
  for (int t = thread_id; t < kSpan * kSpan; t += kAttendThreads) {
    const int r = t / kSpan, c = t % kSpan;
    const bool there = first + r < last && c0 + c < size;
    tile[r * kSpanPitch + c] =
        there ? factor * float(x[(size_t(first + r) * size_t(heads) + size_t(head)) * size_t(size) +
                                 size_t(c0 + c)])
              : 0.0f;
  }
}

// Adds to sums[r] the products of own row r of `left` with row `lane` of `right`: 32 channels.
METAL_FUNC void add_products(thread float* sums, threadgroup float* left, threadgroup float* right,
                             int simdgroup, int lane) {
  for (int c = 0; c < kSpan; ++c)
    for (int r = 0; r < kOwn; ++r)
      sums[r] += left[(simdgroup * kOwn + r) * kSpanPitch + c] * right[lane * kSpanPitch + c];
}

// sum + own row r of `weights` times column `lane` of `right`.
METAL_FUNC float add_column(float sum, threadgroup float* weights, threadgroup float* right,
                            int row, int lane) {
  for (int t = 0; t < kSpan; ++t)
    sum += weights[row * kSpanPitch + t] * right[t * kSpanPitch + lane];
  return sum;
}

// The rows of one segment: queries and keys, and the pairs before it.
struct Segment {
  int q_first, n_q, k_first, n_k, pair0;
};

template <typename I, typename J, typename N>
METAL_FUNC Segment segment_of(I q_offsets, J k_offsets, N pairs, int s) {
  Segment found;
  found.q_first = q_offsets[s];
  found.n_q = int(q_offsets[s + 1]) - found.q_first;
  found.k_first = k_offsets[s];
  found.n_k = int(k_offsets[s + 1]) - found.k_first;
  found.pair0 = pairs[s];
  return found;
}

// Place of the pair (i, j) in a bias of pairs.
METAL_FUNC size_t pair_at(Segment z, int heads, int head, int i, int j) {
  return size_t(heads) * size_t(z.pair0) +
         (size_t(head) * size_t(z.n_q) + size_t(i)) * size_t(z.n_k) + size_t(j);
}

// The logit x of the pair (i, j), rows counted in the segment, with bias and masks.
template <int kBias, bool kMask, bool kCausal, typename B, typename P, typename R, typename M,
          typename Z>
METAL_FUNC float finish_logit(float x, Segment z, B bias, P of_queries, R of_keys, M mask, Z sizes,
                              int head, int i, int j) {
  bool seen = i < z.n_q && j < z.n_k && (!kCausal || j <= i + z.n_k - z.n_q);
  if (seen && kMask) seen = bool(mask[size_t(z.pair0) + size_t(i) * size_t(z.n_k) + size_t(j)]);
  if (seen && kBias == kPairBias) x += float(bias[pair_at(z, sizes[kHeads], head, i, j)]);
  if (seen && kBias > kPairBias)
    x += table_bias < kBias ==
         kJointBias > (bias, of_queries, of_keys, sizes, head, z.q_first + i, z.k_first + j);
  return seen ? x : -INFINITY;
}

// One forward tile.
//
//   blocks (n, 2)  segment and first query of a group, counted in the segment
//   pairs          pairs of rows before each segment
//   group          (0, block, head)
//   kParts         ceil(size / 32)
template <int kParts, int kBias, bool kMask, bool kCausal, typename Out, typename Q, typename K,
          typename V, typename B, typename P, typename R, typename M, typename I, typename J,
          typename N, typename W, typename Z, typename F>
METAL_FUNC void attention_tile(device Out* out, device float* lse, Q q, K k, V v, B bias,
                               P of_queries, R of_keys, M mask, I q_offsets, J k_offsets, N pairs,
                               W blocks, Z sizes, F scale, threadgroup float* left,
                               threadgroup float* right, threadgroup float* weights, uint3 group,
                               uint thread_id, uint lane, uint simdgroup) {
  const int heads = sizes[kHeads], kv_heads = sizes[kKeyHeads], size = sizes[kHeadSize];
  const int head = int(group.z), kv_head = head / (heads / kv_heads), q0 = blocks[2 * group.y + 1],
            at = int(lane), own = int(simdgroup) * kOwn, id = int(thread_id);
  const Segment z = segment_of(q_offsets, k_offsets, pairs, blocks[2 * group.y]);
  const int q_end = z.q_first + z.n_q, k_end = z.k_first + z.n_k;
  const int n_seen = kCausal ? min(q0 + kSpan, z.n_q) + z.n_k - z.n_q : z.n_k;
  float top[kOwn], total[kOwn], sum[kOwn * kParts];
  for (int r = 0; r < kOwn; ++r) {
    top[r] = -INFINITY;
    total[r] = 0.0f;
  }
  for (int i = 0; i < kOwn * kParts; ++i) sum[i] = 0.0f;
  for (int k0 = 0; k0 < n_seen; k0 += kSpan) {
    float logit[kOwn], keep[kOwn];
    for (int r = 0; r < kOwn; ++r) logit[r] = 0.0f;
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(left, q, z.q_first + q0, q_end, heads, head, size, part * kSpan, float(scale[0]),
                id);
      read_tile(right, k, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(logit, left, right, int(simdgroup), at);
    }
    for (int r = 0; r < kOwn; ++r) {
      const float x = finish_logit<kBias, kMask, kCausal>(logit[r], z, bias, of_queries, of_keys,
                                                          mask, sizes, head, q0 + own + r, k0 + at);
      const float next = max(top[r], simd_max(x)), base = next == -INFINITY ? 0.0f : next;
      const float p = x == -INFINITY ? 0.0f : exp(x - base);
      keep[r] = top[r] == -INFINITY ? 0.0f : exp(top[r] - base);
      total[r] = total[r] * keep[r] + simd_sum(p);
      top[r] = next;
      weights[(own + r) * kSpanPitch + at] = p;
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(right, v, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int r = 0; r < kOwn; ++r)
        sum[r * kParts + part] =
            add_column(sum[r * kParts + part] * keep[r], weights, right, own + r, at);
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

// Gradient of the queries, and of a bias of pairs: dS = P (<g, v> - delta), dq = scale dS k, with
// delta (rows, heads) = <g, out>. Blocks and group as above.
template <int kParts, int kBias, bool kMask, bool kCausal, typename Out, typename D, typename Q,
          typename K, typename V, typename G, typename L, typename E, typename B, typename M,
          typename I, typename J, typename N, typename W, typename Z, typename F>
METAL_FUNC void attention_dq(device Out* dq, D dbias, Q q, K k, V v, G g, L lse, E delta, B bias,
                             M mask, I q_offsets, J k_offsets, N pairs, W blocks, Z sizes, F scale,
                             threadgroup float* left, threadgroup float* right,
                             threadgroup float* weights, uint3 group, uint thread_id, uint lane,
                             uint simdgroup) {
  const int heads = sizes[kHeads], kv_heads = sizes[kKeyHeads], size = sizes[kHeadSize];
  const int head = int(group.z), kv_head = head / (heads / kv_heads), q0 = blocks[2 * group.y + 1],
            at = int(lane), own = int(simdgroup) * kOwn, id = int(thread_id);
  const Segment z = segment_of(q_offsets, k_offsets, pairs, blocks[2 * group.y]);
  const int q_end = z.q_first + z.n_q, k_end = z.k_first + z.n_k;
  const int n_seen =  // of a bias every pair is written
      kCausal && kBias != kPairBias ? min(q0 + kSpan, z.n_q) + z.n_k - z.n_q : z.n_k;
  float sum[kOwn * kParts];
  for (int i = 0; i < kOwn * kParts; ++i) sum[i] = 0.0f;
  for (int k0 = 0; k0 < n_seen; k0 += kSpan) {
    float logit[kOwn], dp[kOwn];
    for (int r = 0; r < kOwn; ++r) {
      logit[r] = 0.0f;
      dp[r] = 0.0f;
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(left, q, z.q_first + q0, q_end, heads, head, size, part * kSpan, float(scale[0]),
                id);
      read_tile(right, k, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(logit, left, right, int(simdgroup), at);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(left, g, z.q_first + q0, q_end, heads, head, size, part * kSpan, 1.0f, id);
      read_tile(right, v, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products(dp, left, right, int(simdgroup), at);
    }
    for (int r = 0; r < kOwn; ++r) {
      const int i = q0 + own + r, j = k0 + at;
      const float x = finish_logit<kBias, kMask, kCausal>(logit[r], z, bias, q_offsets, q_offsets,
                                                          mask, sizes, head, i, j);
      float ds = 0.0f;
      if (i < z.n_q && x != -INFINITY) {
        const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
        ds = exp(x - float(lse[row])) * (dp[r] - float(delta[row]));
      }
      weights[(own + r) * kSpanPitch + at] = ds;
      if constexpr (kBias == kPairBias) {
        if (i < z.n_q && j < z.n_k) dbias[pair_at(z, heads, head, i, j)] = ds;
      }
    }
    for (int part = 0; part < kParts; ++part) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      read_tile(right, k, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int r = 0; r < kOwn; ++r)
        sum[r * kParts + part] = add_column(sum[r * kParts + part], weights, right, own + r, at);
    }
  }
  for (int r = 0; r < kOwn; ++r) {
    const int i = q0 + own + r;
    const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
    for (int part = 0; part < kParts; ++part)
      if (i < z.n_q && part * kSpan + at < size)
        dq[row * size_t(size) + size_t(part * kSpan + at)] =
            static_cast<Out>(sum[r * kParts + part] * float(scale[0]));
  }
}

// Gradients of keys and values: dv = P^T g, dk = scale dS^T q.
//
// Sums run over the queries of all heads that share one head of the keys, in order. A simdgroup
// owns 4 keys, a lane one query of a tile.
//
//   blocks (n, 2)  segment and first key
//   group          (0, block, head of the keys)
template <int kParts, int kBias, bool kMask, bool kCausal, typename Out, typename Q, typename K,
          typename V, typename G, typename L, typename E, typename B, typename M, typename I,
          typename J, typename N, typename W, typename Z, typename F>
METAL_FUNC void attention_dkv(device Out* dk, device Out* dv, Q q, K k, V v, G g, L lse, E delta,
                              B bias, M mask, I q_offsets, J k_offsets, N pairs, W blocks, Z sizes,
                              F scale, threadgroup float* left, threadgroup float* right,
                              threadgroup float* weights, threadgroup float* slopes, uint3 group,
                              uint thread_id, uint lane, uint simdgroup) {
  const int heads = sizes[kHeads], kv_heads = sizes[kKeyHeads], size = sizes[kHeadSize];
  const int kv_head = int(group.z), shared_by = heads / kv_heads, k0 = blocks[2 * group.y + 1],
            at = int(lane), own = int(simdgroup) * kOwn, id = int(thread_id);
  const Segment z = segment_of(q_offsets, k_offsets, pairs, blocks[2 * group.y]);
  const int q_end = z.q_first + z.n_q, k_end = z.k_first + z.n_k;
  float of_k[kOwn * kParts], of_v[kOwn * kParts];
  for (int i = 0; i < kOwn * kParts; ++i) {
    of_k[i] = 0.0f;
    of_v[i] = 0.0f;
  }
  for (int head = kv_head * shared_by; head < (kv_head + 1) * shared_by; ++head)
    for (int q0 = 0; q0 < z.n_q; q0 += kSpan) {
      float logit[kOwn], dp[kOwn];
      for (int r = 0; r < kOwn; ++r) {
        logit[r] = 0.0f;
        dp[r] = 0.0f;
      }
      for (int part = 0; part < kParts; ++part) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(left, k, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
        read_tile(right, q, z.q_first + q0, q_end, heads, head, size, part * kSpan, float(scale[0]),
                  id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_products(logit, left, right, int(simdgroup), at);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(left, v, z.k_first + k0, k_end, kv_heads, kv_head, size, part * kSpan, 1.0f, id);
        read_tile(right, g, z.q_first + q0, q_end, heads, head, size, part * kSpan, 1.0f, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        add_products(dp, left, right, int(simdgroup), at);
      }
      const int i = q0 + at;
      for (int r = 0; r < kOwn; ++r) {
        const float x = finish_logit<kBias, kMask, kCausal>(logit[r], z, bias, q_offsets, q_offsets,
                                                            mask, sizes, head, i, k0 + own + r);
        float p = 0.0f, ds = 0.0f;
        if (i < z.n_q && x != -INFINITY) {
          const size_t row = size_t(z.q_first + i) * size_t(heads) + size_t(head);
          p = exp(x - float(lse[row]));
          ds = p * (dp[r] - float(delta[row]));
        }
        weights[(own + r) * kSpanPitch + at] = p;
        slopes[(own + r) * kSpanPitch + at] = ds;
      }
      for (int part = 0; part < kParts; ++part) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        read_tile(left, g, z.q_first + q0, q_end, heads, head, size, part * kSpan, 1.0f, id);
        read_tile(right, q, z.q_first + q0, q_end, heads, head, size, part * kSpan, float(scale[0]),
                  id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int r = 0; r < kOwn; ++r) {
          of_v[r * kParts + part] = add_column(of_v[r * kParts + part], weights, left, own + r, at);
          of_k[r * kParts + part] = add_column(of_k[r * kParts + part], slopes, right, own + r, at);
        }
      }
    }
  for (int r = 0; r < kOwn; ++r) {
    const int j = k0 + own + r;
    const size_t row = size_t(z.k_first + j) * size_t(kv_heads) + size_t(kv_head);
    for (int part = 0; part < kParts; ++part)
      if (j < z.n_k && part * kSpan + at < size) {
        const size_t to = row * size_t(size) + size_t(part * kSpan + at);
        dk[to] = static_cast<Out>(of_k[r * kParts + part]);
        dv[to] = static_cast<Out>(of_v[r * kParts + part]);
      }
  }
}

}  // namespace lattice
