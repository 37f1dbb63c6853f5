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

// Queries [q0, q1) against keys [k0, k1) of one segment, for all heads of one kv head. Which sums
// are complete afterwards and are written: those of the queries, of the keys, or of both.
struct BackwardItem {
  int64_t s, g, q0, q1, k0, k1;
  bool of_queries, of_keys;
};

struct BackwardScratch {
  int64_t ld;
  Buffer<float> q, g, k, kt, v, vt, p, dp, dq, dk, dv;
  Buffer<int32_t> positions;
  BackwardScratch(int64_t size, int64_t queries, int64_t keys)
      : ld(padded_size(size)),
        q(kTileRows * ld),
        g(kTileRows * ld),
        k(kTileKeys * ld),
        kt(kTileKeys * round_up(size, 4)),
        v(kTileKeys * ld),
        vt(kTileKeys * round_up(size, 4)),
        p(kTileRows * kTileKeys),
        dp(kTileRows * kTileKeys),
        dq(queries * ld),
        dk(keys * ld),
        dv(keys * ld),
        positions(3 * kTileKeys) {
    for (Buffer<float>* b : {&q, &g, &k, &kt, &v, &vt, &p, &dp})
      std::fill(b->begin(), b->end(), 0.0f);
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

// P and dS of one tile from its logits and dP, in place. `dtable`: of the tile's head, or null.
template <typename T>
HWY_NOINLINE void differentiate_tile(const Context& x, const Tile& t, const AttentionGradients& y,
                                     BackwardScratch& w, double* dtable) {
  const Floats d;
  const Attention& a = x.a;
  const T* g = static_cast<const T*>(y.g);
  const T* o = static_cast<const T*>(y.out);
  const int64_t all = a.q_offsets[a.segments] * a.heads * a.size;
  for (int64_t r = 0; r < t.rows; ++r) {
    float* HWY_RESTRICT p = w.p.data() + r * kTileKeys;
    float* HWY_RESTRICT ds = w.dp.data() + r * kTileKeys;
    finish_logits(x, t, r, w.positions.data(), p);
    const int64_t at = (a.q_offsets[t.s] + t.q0 + r) * a.heads + t.head;
    const Vec delta =
        hn::Set(d, dot_row(g + at * a.size, o + at * a.size, a.size, g + all, o + all));
    const Vec lse = hn::Set(d, y.lse[at]);
    for (int64_t j = 0; j < t.keys; j += kLanes) {
      const Vec e = exp_vector(d, hn::Sub(hn::Load(d, p + j), lse));
      hn::Store(e, d, p + j);
      hn::Store(hn::Mul(e, hn::Sub(hn::Load(d, ds + j), delta)), d, ds + j);
    }
    if (y.dbias) std::copy_n(ds, t.keys, y.dbias + (x.bias_row(t, r) - a.bias));
    if (dtable) add_to_table(x, t, r, w.positions.data(), ds, dtable);
  }
}

// `dtable` receives derivatives of the table, (heads of the kv head, size); null: none are wanted
// of this item.
template <typename T>
void backward_item(const Context& x, const BackwardItem& item, const AttentionGradients& y,
                   double* dtable, BackwardScratch& w) {
  const Attention& a = x.a;
  const int64_t ld = w.ld, sizes = vectors_of(a.size), group = a.heads / a.kv_heads;
  const int64_t kt_panel = round_up(a.size, 4) * kPanelWidth;
  const int64_t q_pitch = a.heads * a.size, k_pitch = a.kv_heads * a.size;
  const auto queries = [&](const void* from, int64_t head) {
    const T* base = static_cast<const T*>(from);
    return HeadRows<T>{base + a.q_offsets[item.s] * q_pitch + head * a.size,
                       base + a.q_offsets[a.segments] * q_pitch, q_pitch, a.size};
  };
  const auto keys_of = [&](const void* from) {
    const T* base = static_cast<const T*>(from);
    return HeadRows<T>{base + a.k_offsets[item.s] * k_pitch + item.g * a.size,
                       base + a.k_offsets[a.segments] * k_pitch, k_pitch, a.size};
  };
  const int64_t n_q = item.q1 - item.q0, n_k = item.k1 - item.k0;
  if (item.of_keys)
    for (Buffer<float>* b : {&w.dk, &w.dv}) std::fill_n(b->data(), n_k * ld, 0.0f);
  for (int64_t head = item.g * group; head < (item.g + 1) * group; ++head) {
    if (item.of_queries) std::fill_n(w.dq.data(), n_q * ld, 0.0f);
    for (int64_t k0 = item.k0; k0 < item.k1; k0 += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, item.k1 - k0);
      copy_head(keys_of(a.k), k0, keys, 1.0f, w.k.data(), ld);
      copy_head(keys_of(a.v), k0, keys, 1.0f, w.v.data(), ld);
      transpose_panels(w.k.data(), ld, keys, a.size, w.kt.data());
      transpose_panels(w.v.data(), ld, keys, a.size, w.vt.data());
      if (a.positions.table) copy_positions(x, {item.s, head, 0, 0, k0, keys}, w.positions.data());
      for (int64_t q0 = item.q0; q0 < item.q1; q0 += kTileRows) {
        const Tile t{item.s, head, q0, std::min(kTileRows, item.q1 - q0), k0, keys};
        if (x.seen(t, t.rows - 1) == 0) {
          for (int64_t r = 0; y.dbias && r < t.rows; ++r)
            std::fill_n(y.dbias + (x.bias_row(t, r) - a.bias), keys, 0.0f);
          continue;
        }
        copy_head(queries(a.q, head), q0, t.rows, a.scale, w.q.data(), ld);
        copy_head(queries(y.g, head), q0, t.rows, 1.0f, w.g.data(), ld);
        const Left q{w.q.data(), ld, 1, t.rows}, g{w.g.data(), ld, 1, t.rows};
        multiply<Into::set>(q, {w.kt.data(), kt_panel, kPanelWidth}, a.size, vectors_of(keys),
                            {w.p.data(), kTileKeys});
        multiply<Into::set>(g, {w.vt.data(), kt_panel, kPanelWidth}, a.size, vectors_of(keys),
                            {w.dp.data(), kTileKeys});
        double* of_head = dtable ? dtable + (head - item.g * group) * a.positions.size : nullptr;
        differentiate_tile<T>(x, t, y, w, of_head);
        if (item.of_keys) {
          const int64_t to = (k0 - item.k0) * ld;
          multiply<Into::add>({w.p.data(), 1, kTileKeys, keys}, {w.g.data(), kPanelWidth, ld},
                              t.rows, sizes, {w.dv.data() + to, ld});
          multiply<Into::add>({w.dp.data(), 1, kTileKeys, keys}, {w.q.data(), kPanelWidth, ld},
                              t.rows, sizes, {w.dk.data() + to, ld});
        }
        if (item.of_queries)
          multiply<Into::add>({w.dp.data(), kTileKeys, 1, t.rows}, {w.k.data(), kPanelWidth, ld},
                              keys, sizes, {w.dq.data() + (q0 - item.q0) * ld, ld});
      }
    }
    if (item.of_queries)
      write_head(w.dq.data(), ld, n_q, a.scale,
                 static_cast<T*>(y.dq) + (a.q_offsets[item.s] + item.q0) * q_pitch + head * a.size,
                 q_pitch, a.size);
  }
  if (!item.of_keys) return;
  const int64_t to = (a.k_offsets[item.s] + item.k0) * k_pitch + item.g * a.size;
  write_head(w.dk.data(), ld, n_k, 1.0f, static_cast<T*>(y.dk) + to, k_pitch, a.size);
  write_head(w.dv.data(), ld, n_k, 1.0f, static_cast<T*>(y.dv) + to, k_pitch, a.size);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
