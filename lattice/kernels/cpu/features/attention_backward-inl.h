// Backward pass of attention. With P from the saved lse, G the cotangent of the output O and
// delta[i] = <G[i], O[i]>:
//
//   dV = P^T G     dP = G V^T     dS = P (dP - delta)     dQ = scale dS K     dK = scale dS^T Q
//
// Included once per Highway target.
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/attention-inl.h"
#include "lattice/kernels/cpu/features/lane_sum-inl.h"

#if defined(LATTICE_KERNELS_CPU_ATTENTION_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ATTENTION_BACKWARD_INL_H
#undef LATTICE_KERNELS_CPU_ATTENTION_BACKWARD_INL_H
#else
#define LATTICE_KERNELS_CPU_ATTENTION_BACKWARD_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Queries [q0, q1) against keys [k0, k1) of one segment, for all heads of one kv head. of_queries
// and of_keys say which sums are complete after the item and are then written.
struct BackwardItem {
  int64_t s, g, q0, q1, k0, k1;
  bool of_queries, of_keys;
};

// At most this many bytes of copied queries are reused from one tile of keys to the next.
constexpr int64_t kKeptBytes = int64_t{4} << 20;

struct BackwardScratch {
  int64_t ld, kept;
  Buffer<float> q, g, base, delta, k, kt, vt, p, dp, dq, dk, dv;
  Buffer<int32_t> positions;
  // `most` is the largest number of queries of any item, `queries` that of the items that sum dq.
  BackwardScratch(int64_t size, int64_t most, int64_t queries, int64_t keys)
      : ld(padded_size(size)),
        kept(std::min(round_up(most, kTileRows), kKeptBytes / 8 / ld / kTileRows * kTileRows)),
        q((kept + kTileRows) * ld),
        g((kept + kTileRows) * ld),
        base(kept + kTileRows),
        delta(kept + kTileRows),
        k(kTileKeys * ld),
        kt(kTileKeys * round_up(size, 4)),
        vt(kTileKeys * round_up(size, 4)),
        p(kTileRows * kTileKeys),
        dp(kTileRows * kTileKeys),
        dq(queries * ld),
        dk(keys * ld),
        dv(keys * ld),
        positions(3 * kTileKeys) {
    std::fill(positions.begin(), positions.end(), 0);
  }
};

// Adds the row's derivatives to the table of its head.
HWY_NOINLINE void add_to_table(const Context& x, const Tile& t, int64_t r,
                               const int32_t* k_positions, const float* ds, double* table) {
  const hn::RebindToSigned<Floats> di;
  HWY_ALIGN int32_t entries[kLanes];
  const PositionTable& p = x.a.positions;
  const int32_t* query = p.q_positions + (x.a.q_offsets[t.s] + t.q0 + r) * p.axes;
  for (int64_t j = 0; j < t.keys; j += kLanes) {
    const int64_t n = std::min(kLanes, t.keys - j);
    x.reader.lookups(di, query, k_positions + j, [&](auto e) HWY_ATTR {
      hn::Store(e, di, entries);
      for (int64_t i = 0; i < n; ++i) table[entries[i]] += double{ds[j + i]};
    });
  }
}

template <typename T>
float dot_row(const T* a, const T* b, int64_t n, const T* a_end, const T* b_end) {
  const Floats d;
  Vec sum[kSumVectors];
  unroll<kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  for (int64_t j = 0; j < n; j += kLine)
    unroll<kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      const int64_t at = j + i * kLanes;
      if (at + kLanes <= n) {
        sum[i] = hn::MulAdd(load(d, a + at), load(d, b + at), sum[i]);
      } else if (at < n) {
        const auto left = hn::FirstN(d, static_cast<size_t>(n - at));
        const Vec x = hn::IfThenElseZero(left, load_until(d, a + at, a_end));
        sum[i] = hn::MulAdd(x, hn::IfThenElseZero(left, load_until(d, b + at, b_end)), sum[i]);
      }
    });
  return total_of(sum);
}

// Writes rows of a head: x (.., heads, size) from `from` (rows, ld), times factor.
template <typename T>
void write_head(const float* from, int64_t ld, int64_t rows, float factor, T* x, int64_t pitch,
                int64_t size) {
  const Floats d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < size; j += kLanes)
      store(hn::Mul(hn::Load(d, from + r * ld + j), hn::Set(d, factor)), d, x + r * pitch + j,
            size - j);
}

// Queries of one tile: copies of q and of the cotangent, base = lse in units of log 2, delta.
struct TileQueries {
  float *q, *g, *base, *delta;
};

template <typename T>
HWY_NOINLINE void copy_queries(const Context& x, const Tile& t, const AttentionGradients& y,
                               const TileQueries& to, int64_t ld) {
  const Attention& a = x.a;
  const HeadRows<T> g = query_rows<T>(a, y.g, t.s, t.head),
                    o = query_rows<T>(a, y.out, t.s, t.head);
  copy_head(query_rows<T>(a, a.q, t.s, t.head), t.q0, t.rows, to.q, ld);
  copy_head(g, t.q0, t.rows, to.g, ld);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t at = (t.q0 + r) * g.pitch;
    to.delta[r] = dot_row(g.x + at, o.x + at, a.size, g.end, o.end);
    to.base[r] = y.lse[(a.q_offsets[t.s] + t.q0 + r) * a.heads + t.head] * kLog2E;
  }
}

// R rows of logits become P = 2^(logit - base), and dP becomes dS = P (dP - delta).
template <int R>
HWY_INLINE void differentiate_rows(float* HWY_RESTRICT p, float* HWY_RESTRICT ds, int64_t vectors,
                                   const float* base, const float* delta) {
  const Floats d;
  for (int64_t v = 0; v < vectors; ++v)
    unroll<R>([&](auto r) LATTICE_INLINE_LAMBDA {
      const int64_t at = r * kTileKeys + v * kLanes;
      const Vec e = exp2_vector(d, hn::Sub(hn::Load(d, p + at), hn::Set(d, base[r])));
      hn::Store(e, d, p + at);
      hn::Store(hn::Mul(e, hn::Sub(hn::Load(d, ds + at), hn::Set(d, delta[r]))), d, ds + at);
    });
}

// P and dS of one tile from its logits and dP, in place. `dtable`: of the tile's head, or null.
HWY_NOINLINE void differentiate_tile(const Context& x, const Tile& t, const AttentionGradients& y,
                                     const TileQueries& of, BackwardScratch& w, double* dtable) {
  constexpr int kRows = 4;  // the chains of one row hide behind the others
  const Attention& a = x.a;
  const auto p = [&](int64_t r) { return w.p.data() + r * kTileKeys; };
  const auto ds = [&](int64_t r) { return w.dp.data() + r * kTileKeys; };
  if (a.bias || a.positions.table || a.mask || a.causal)
    for (int64_t r = 0; r < t.rows; ++r) finish_logits(x, t, r, w.positions.data(), p(r));
  int64_t r = 0;
  for (; r + kRows <= t.rows; r += kRows)
    differentiate_rows<kRows>(p(r), ds(r), vectors_of(t.keys), of.base + r, of.delta + r);
  for (; r < t.rows; ++r)
    differentiate_rows<1>(p(r), ds(r), vectors_of(t.keys), of.base + r, of.delta + r);
  for (r = 0; y.dbias && r < t.rows; ++r)
    std::copy_n(ds(r), t.keys, y.dbias + (x.bias_row(t, r) - a.bias));
  for (r = 0; dtable && r < t.rows; ++r) add_to_table(x, t, r, w.positions.data(), ds(r), dtable);
}

// The rows to prefetch while tile t is computed: the next keys, values and queries, and those of
// complete sums. `next` is the item after `item`.
template <typename T>
Ahead next_rows(const Context& x, const BackwardItem& item, const BackwardItem& next, const Tile& t,
                const AttentionGradients& y) {
  const Attention& a = x.a;
  const int64_t q_next = t.q0 + t.rows, k_next = t.k0 + t.keys, rows = item.q1 - item.q0;
  Ahead ahead;
  const auto add_queries = [&](const BackwardItem& of, int64_t head, int64_t q0) {
    for (const void* from : {a.q, y.g, y.out})
      ahead.add(query_rows<T>(a, from, of.s, head), q0, std::min(q0 + kTileRows, of.q1));
  };
  if (k_next < item.k1) {
    const int64_t count = std::min(kTileKeys, item.k1 - k_next);
    for (const void* from : {a.k, a.v})
      ahead.add(key_rows<T>(a, from, item.s, item.g), k_next + count * (t.q0 - item.q0) / rows,
                k_next + count * (q_next - item.q0) / rows);
  }
  if (item.of_queries && k_next == item.k1)
    ahead.add(query_rows<T>(a, y.dq, item.s, t.head), t.q0, q_next);
  if (item.of_keys && q_next == item.q1)
    for (const void* to : {y.dk, y.dv}) ahead.add(key_rows<T>(a, to, item.s, item.g), t.k0, k_next);
  if (q_next < item.q1) {
    if (t.k0 == item.k0) add_queries(item, t.head, q_next);
  } else if (k_next == item.k1) {
    add_queries(next, next.g * (a.heads / a.kv_heads), next.q0);
    const int64_t k_end = std::min(next.k1, next.k0 + kTileKeys);
    for (const void* from : {a.k, a.v})
      ahead.add(key_rows<T>(a, from, next.s, next.g), next.k0, k_end);
  }
  const int64_t sizes = vectors_of(a.size);
  ahead.spread_over(2 * steps_of(t.rows, vectors_of(t.keys)) + 2 * steps_of(t.keys, sizes) +
                    steps_of(t.rows, sizes));
  return ahead;
}

// The keys and values of a tile, as its products read them.
template <typename T>
HWY_INLINE void copy_keys(const Context& x, const Tile& t, const HeadRows<T>& k,
                          const HeadRows<T>& v, BackwardScratch& w) {
  copy_head(k, t.k0, t.keys, w.k.data(), w.ld);
  transpose_panels(k, t.k0, t.keys, x.a.scale * kLog2E, w.kt.data());
  transpose_panels(v, t.k0, t.keys, 1.0f, w.vt.data());
  if (x.a.positions.table) copy_positions(x, t, w.positions.data());
}

// Writes zeros to the bias gradient of a tile in which no query sees a key.
void clear_bias(const Context& x, const Tile& t, float* dbias) {
  for (int64_t r = 0; r < t.rows; ++r)
    std::fill_n(dbias + (x.bias_row(t, r) - x.a.bias), t.keys, 0.0f);
}

// q k^T and g v^T of a tile.
HWY_INLINE void multiply_keys(int64_t size, const TileQueries& of, const Tile& t,
                              BackwardScratch& w, Ahead& ahead) {
  const int64_t panel = round_up(size, 4) * kPanelWidth;
  multiply<Into::set>({of.q, w.ld, 1, t.rows}, {w.kt.data(), panel, kPanelWidth}, size,
                      vectors_of(t.keys), {w.p.data(), kTileKeys}, ahead);
  multiply<Into::set>({of.g, w.ld, 1, t.rows}, {w.vt.data(), panel, kPanelWidth}, size,
                      vectors_of(t.keys), {w.dp.data(), kTileKeys}, ahead);
}

// Writes the complete sums of keys and values from k0 on.
template <typename T>
HWY_INLINE void write_keys(const Attention& a, const BackwardItem& item, int64_t k0, int64_t keys,
                           const AttentionGradients& y, const BackwardScratch& w) {
  const int64_t pitch = a.kv_heads * a.size, from = (k0 - item.k0) * w.ld;
  const int64_t at = (a.k_offsets[item.s] + k0) * pitch + item.g * a.size;
  write_head(w.dk.data() + from, w.ld, keys, a.scale, static_cast<T*>(y.dk) + at, pitch, a.size);
  write_head(w.dv.data() + from, w.ld, keys, 1.0f, static_cast<T*>(y.dv) + at, pitch, a.size);
}

// `dtable` receives derivatives of the table, (heads of the kv head, size); null if this item
// computes none.
template <typename T>
void backward_item(const Context& x, const BackwardItem& item, const BackwardItem& next,
                   const AttentionGradients& y, double* dtable, BackwardScratch& w) {
  const Attention& a = x.a;
  const int64_t ld = w.ld, sizes = vectors_of(a.size), group = a.heads / a.kv_heads;
  const int64_t q_pitch = a.heads * a.size;
  const HeadRows<T> k = key_rows<T>(a, a.k, item.s, item.g),
                    v = key_rows<T>(a, a.v, item.s, item.g);
  const int64_t first_head = item.g * group, n_q = item.q1 - item.q0, n_k = item.k1 - item.k0;
  T* const dq = static_cast<T*>(y.dq) + (a.q_offsets[item.s] + item.q0) * q_pitch;
  // The sums begin with zeros where tiles may be skipped because they see nothing, and where there
  // are no tiles.
  const bool zeros = a.causal || n_q == 0 || n_k == 0;
  if (zeros && item.of_keys)
    for (Buffer<float>* b : {&w.dk, &w.dv}) std::fill_n(b->data(), n_k * ld, 0.0f);
  const auto sum = [&](bool first, const Left& left, const Right& right, int64_t depth, float* to,
                       Ahead& ahead) {
    if (first && !zeros)
      multiply<Into::set>(left, right, depth, sizes, {to, ld}, ahead);
    else
      multiply<Into::add>(left, right, depth, sizes, {to, ld}, ahead);
  };
  for (int64_t head = first_head; head < first_head + group; ++head) {
    if (zeros && item.of_queries) std::fill_n(w.dq.data(), n_q * ld, 0.0f);
    for (int64_t k0 = item.k0; k0 < item.k1; k0 += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, item.k1 - k0), to = (k0 - item.k0) * ld;
      copy_keys(x, {item.s, head, 0, 0, k0, keys}, k, v, w);
      for (int64_t q0 = item.q0; q0 < item.q1; q0 += kTileRows) {
        const Tile t{item.s, head, q0, std::min(kTileRows, item.q1 - q0), k0, keys};
        if (x.seen(t, t.rows - 1) == 0) {
          if (y.dbias) clear_bias(x, t, y.dbias);
          continue;
        }
        // Queries after the kept ones are copied again for each tile of keys.
        const int64_t kept = std::min(q0 - item.q0, w.kept);
        const TileQueries of{w.q.data() + kept * ld, w.g.data() + kept * ld, w.base.data() + kept,
                             w.delta.data() + kept};
        if (k0 == item.k0 || kept == w.kept) copy_queries<T>(x, t, y, of, ld);
        Ahead ahead = next_rows<T>(x, item, next, t, y);
        multiply_keys(a.size, of, t, w, ahead);
        double* of_head = dtable ? dtable + (head - first_head) * a.positions.size : nullptr;
        differentiate_tile(x, t, y, of, w, of_head);
        if (item.of_keys) {
          const bool first = head == first_head && q0 == item.q0;
          sum(first, {w.p.data(), 1, kTileKeys, keys}, {of.g, kPanelWidth, ld}, t.rows,
              w.dv.data() + to, ahead);
          sum(first, {w.dp.data(), 1, kTileKeys, keys}, {of.q, kPanelWidth, ld}, t.rows,
              w.dk.data() + to, ahead);
        }
        if (item.of_queries)
          sum(k0 == item.k0, {w.dp.data(), kTileKeys, 1, t.rows}, {w.k.data(), kPanelWidth, ld},
              keys, w.dq.data() + (q0 - item.q0) * ld, ahead);
      }
      if (item.of_keys && head + 1 == first_head + group) write_keys<T>(a, item, k0, keys, y, w);
    }
    if (item.of_queries)
      write_head(w.dq.data(), ld, n_q, a.scale, dq + head * a.size, q_pitch, a.size);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
