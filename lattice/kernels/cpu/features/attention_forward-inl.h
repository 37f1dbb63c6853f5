// Forward pass of attention: a chunk of queries of one segment and head against all its keys.
// Included once per Highway target.
#include <cmath>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/attention-inl.h"
#include "lattice/kernels/cpu/features/lane_sum-inl.h"

#if defined(LATTICE_KERNELS_CPU_ATTENTION_FORWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ATTENTION_FORWARD_INL_H
#undef LATTICE_KERNELS_CPU_ATTENTION_FORWARD_INL_H
#else
#define LATTICE_KERNELS_CPU_ATTENTION_FORWARD_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// kSoftRows rows at once, so the dependent operations of one row overlap with those of the
// others.
constexpr int kSoftRows = 4;

// What the rows of a chunk remember of the keys so far: the largest logit, and the sum of the
// weights in kLine parts.
struct Softmax {
  float* top;
  float* total;
};

// top[r] = the largest logit of row r and of top[r] before.
template <int R>
HWY_INLINE void raise_tops(const float* HWY_RESTRICT rows, int64_t vectors, float* top) {
  const Floats d;
  Vec most[R];
  unroll<R>([&](auto r) LATTICE_INLINE_LAMBDA { most[r] = hn::Set(d, top[r]); });
  for (int64_t v = 0; v < vectors; ++v)
    unroll<R>([&](auto r) LATTICE_INLINE_LAMBDA {
      most[r] = hn::Max(most[r], hn::Load(d, rows + r * kTileKeys + v * kLanes));
    });
  unroll<R>([&](auto r)
                LATTICE_INLINE_LAMBDA { top[r] = hn::GetLane(hn::MaxOfLanes(d, most[r])); });
}

// Rows of logits become 2^(logit - base), and total becomes keep total + their sum. keep is null
// where nothing was summed before.
template <int R>
HWY_INLINE void soften_rows(float* HWY_RESTRICT rows, int64_t vectors, const float* base,
                            const float* keep, float* HWY_RESTRICT total) {
  const Floats d;
  Vec sum[R * kSumVectors];
  unroll<R * kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
    sum[i] = keep ? hn::Mul(hn::Set(d, keep[i / kSumVectors]), hn::Load(d, total + i * kLanes))
                  : hn::Zero(d);
  });
  for (int64_t v = 0; v < vectors; v += kSumVectors)
    unroll<R * kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      constexpr int r = i / kSumVectors, n = i % kSumVectors;
      float* at = rows + r * kTileKeys + (v + n) * kLanes;
      const Vec e = exp2_vector(d, hn::Sub(hn::Load(d, at), hn::Set(d, base[r])));
      hn::Store(e, d, at);
      sum[i] = hn::Add(sum[i], e);
    });
  unroll<R * kSumVectors>([&](auto i)
                              LATTICE_INLINE_LAMBDA { hn::Store(sum[i], d, total + i * kLanes); });
}

// Turns the logits of a tile into 2^(logit - top) and updates top and total of each row. keep[r] is
// the factor of what was summed before; `first`: nothing was. `vectors` is a multiple of
// kSumVectors.
HWY_NOINLINE void soften(float* HWY_RESTRICT logits, int64_t rows, int64_t vectors, bool first,
                         const Softmax& state, float* keep) {
  const Floats d;
  float before[kTileRows + kLanes], base[kTileRows + kLanes];
  if (first) std::fill_n(state.top, rows, -kInf);
  std::copy_n(state.top, rows, before);
  std::fill_n(before + rows, kLanes, 0.0f);
  std::fill_n(base + rows, kLanes, 0.0f);
  int64_t r = 0;
  for (; r + kSoftRows <= rows; r += kSoftRows)
    raise_tops<kSoftRows>(logits + r * kTileKeys, vectors, state.top + r);
  for (; r < rows; ++r) raise_tops<1>(logits + r * kTileKeys, vectors, state.top + r);
  for (r = 0; r < rows; ++r) base[r] = state.top[r] == -kInf ? 0.0f : state.top[r];
  for (r = 0; !first && r < rows; r += kLanes)
    hn::StoreU(exp2_vector(d, hn::Sub(hn::LoadU(d, before + r), hn::LoadU(d, base + r))), d,
               keep + r);
  const auto soften_some = [&]<int R>(std::integral_constant<int, R>) HWY_ATTR {
    soften_rows<R>(logits + r * kTileKeys, vectors, base + r, first ? nullptr : keep + r,
                   state.total + r * kLine);
  };
  for (r = 0; r + kSoftRows <= rows; r += kSoftRows)
    soften_some(std::integral_constant<int, kSoftRows>());
  for (; r < rows; ++r) soften_some(std::integral_constant<int, 1>());
}

struct ForwardScratch {
  int64_t ld;
  Buffer<float> q, out, kt, v, logits, top, total;
  Buffer<int32_t> positions;
  ForwardScratch(int64_t size, int64_t rows)
      : ld(padded_size(size)),
        q(rows * ld),
        out(rows * ld),
        kt(kTileKeys * round_up(size, 4)),
        v(kTileKeys * ld),
        logits(kTileRows * kTileKeys),
        top(rows),
        total(rows * kLine),
        positions(3 * kTileKeys) {
    std::fill(positions.begin(), positions.end(), 0);
  }
};

// Log-sum-exp of at most kTileRows rows to lse, whose rows are `pitch` apart, and 1 / sum to share.
// A sum of 0 means that no key was seen; the share is then 0. NaN stays NaN.
HWY_NOINLINE void finish_rows(const Softmax& state, int64_t rows, float* HWY_RESTRICT lse,
                              int64_t pitch, float* HWY_RESTRICT share) {
  const Floats d;
  float total[kTileRows + kLanes], logs[kTileRows + kLanes];
  std::fill_n(total + rows, kLanes, 1.0f);
  for (int64_t r = 0; r < rows; ++r) {
    Vec parts[kSumVectors];
    unroll<kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      parts[i] = hn::Load(d, state.total + r * kLine + i * kLanes);
    });
    total[r] = total_of(parts);
  }
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec sum = hn::LoadU(d, total + r);
    hn::StoreU(log2_vector(d, sum), d, logs + r);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), sum)), d,
               share + r);
  }
  for (int64_t r = 0; r < rows; ++r)
    lse[r * pitch] = total[r] == 0.0f ? kInf : (state.top[r] + logs[r]) * kLn2;
}

// Queries [q0, q0 + rows) of one segment and head.
struct ForwardItem {
  int64_t s, head, q0, rows;
};

// The rows to prefetch while tile t is computed: the next keys, values and queries, and those of
// the next results. `next` is the item after `item`.
template <typename T>
Ahead next_rows(const Context& x, const ForwardItem& item, const ForwardItem& next, const Tile& t,
                bool last, const T* out) {
  const Attention& a = x.a;
  const int64_t group = a.heads / a.kv_heads, end = item.q0 + item.rows, n_next = x.keys(next.s);
  const ForwardItem& of_keys = last ? next : item;
  Ahead ahead;
  if (!last || next.s != item.s || next.head / group != item.head / group || n_next > kTileKeys) {
    // A part of the keys for each tile of queries.
    const int64_t k0 = last ? 0 : t.k0 + kTileKeys;
    const int64_t count = std::min(kTileKeys, x.keys(of_keys.s) - k0);
    const int64_t first = k0 + count * (t.q0 - item.q0) / item.rows,
                  behind = k0 + count * (t.q0 + t.rows - item.q0) / item.rows;
    for (const void* from : {a.k, a.v})
      ahead.add(key_rows<T>(a, from, of_keys.s, of_keys.head / group), first, behind);
  }
  const bool more = t.q0 + t.rows < end;
  const ForwardItem& of_rows = more ? item : next;
  const int64_t q0 = more ? t.q0 + t.rows : next.q0,
                q_end = std::min(q0 + kTileRows, of_rows.q0 + of_rows.rows);
  if (more ? t.k0 == 0 : last) ahead.add(query_rows<T>(a, a.q, of_rows.s, of_rows.head), q0, q_end);
  if (last && (more || n_next <= kTileKeys))
    ahead.add(query_rows<T>(a, out, of_rows.s, of_rows.head), q0, q_end);
  ahead.spread_over(steps_of(t.rows, vectors_of(t.keys)) + steps_of(t.rows, vectors_of(a.size)));
  return ahead;
}

HWY_INLINE void finish_tile(const Context& x, const Tile& t, ForwardScratch& w) {
  for (int64_t r = 0; r < t.rows; ++r)
    finish_logits(x, t, r, w.positions.data(), w.logits.data() + r * kTileKeys);
}

// Rows of sums times their factors, as rows of `size` values.
template <typename T>
HWY_INLINE void write_scaled(const Result& sums, int64_t rows, int64_t size, T* to, int64_t pitch) {
  const Floats d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < size; j += kLanes)
      store(hn::Mul(hn::Load(d, sums.x + r * sums.ld + j), hn::Set(d, sums.keep[r])), d,
            to + r * pitch + j, size - j);
}

// The queries of a tile: those of x where they can be read in place, else a copy at `to`, which is
// made with the first keys.
template <typename T>
HWY_INLINE Left queries_of(const HeadRows<T>& q, const Tile& t, bool direct, float* to,
                           int64_t ld) {
  if constexpr (std::is_same_v<T, float>)
    if (direct) return {q.x + t.q0 * q.pitch, q.pitch, 1, t.rows};
  if (t.k0 == 0) copy_head(q, t.q0, t.rows, to, ld);
  return {to, ld, 1, t.rows};
}

// The state of rows that have seen no key.
HWY_INLINE void clear_rows(const Softmax& state, float* sums, int64_t rows, int64_t ld) {
  std::fill_n(sums, rows * ld, 0.0f);
  std::fill_n(state.top, rows, -kInf);
  std::fill_n(state.total, rows * kLine, 0.0f);
}

template <typename T>
void forward_item(const Context& x, const ForwardItem& item, const ForwardItem& next, T* out,
                  float* lse, ForwardScratch& w) {
  const Attention& a = x.a;
  const auto [s, head, q_begin, rows] = item;
  const int64_t g = head / (a.heads / a.kv_heads), ld = w.ld, sizes = vectors_of(a.size),
                pitch = a.heads * a.size;
  const HeadRows<T> q = query_rows<T>(a, a.q, s, head), k = key_rows<T>(a, a.k, s, g),
                    v = key_rows<T>(a, a.v, s, g);
  T* const to = out + (a.q_offsets[s] + q_begin) * pitch + head * a.size;
  const bool changed = a.bias || a.positions.table || a.mask || a.causal;
  const int64_t n = last_key(x, s, q_begin + rows);
  // If one tile holds all keys and rows are whole vectors, queries are read in place and results
  // are written in place.
  const bool direct =
      std::is_same_v<T, float> && a.size % kLanes == 0 && 0 < n && n <= kTileKeys && !a.causal;
  for (int64_t k0 = 0; k0 == 0 || k0 < n; k0 += kTileKeys) {
    const int64_t keys = std::min(kTileKeys, n - k0);
    const bool last = k0 + keys == n;
    transpose_panels(k, k0, keys, a.scale * kLog2E, w.kt.data());
    copy_head(v, k0, keys, w.v.data(), ld);
    if (a.positions.table)
      copy_positions(x, {s, head, q_begin, rows, k0, keys}, w.positions.data());
    for (int64_t r0 = 0; r0 < rows; r0 += kTileRows) {
      const Tile t{s, head, q_begin + r0, std::min(kTileRows, rows - r0), k0, keys};
      const Softmax state{w.top.data() + r0, w.total.data() + r0 * kLine};
      float* sums = w.out.data() + r0 * ld;
      float keep[kTileRows + kLanes];
      const auto finish = [&] {
        finish_rows(state, t.rows, lse + (a.q_offsets[s] + t.q0) * a.heads + head, a.heads, keep);
      };
      if (x.seen(t, t.rows - 1) > 0) {
        Ahead ahead = next_rows(x, item, next, t, last, out);
        const Left queries = queries_of(q, t, direct, w.q.data() + r0 * ld, ld);
        multiply<Into::set>(queries, {w.kt.data(), round_up(a.size, 4) * kPanelWidth, kPanelWidth},
                            a.size, vectors_of(keys), {w.logits.data(), kTileKeys}, ahead);
        if (changed || keys % kLine) finish_tile(x, t, w);
        soften(w.logits.data(), t.rows, vectors_of_row(keys), k0 == 0, state, keep);
        const Left weights{w.logits.data(), kTileKeys, 1, t.rows};
        const Right values{w.v.data(), kPanelWidth, ld};
        if (direct) {
          finish();
          if constexpr (std::is_same_v<T, float>)
            multiply<Into::scaled>(weights, values, keys, sizes, {to + r0 * pitch, pitch, keep},
                                   ahead);
        } else if (k0 == 0) {
          multiply<Into::set>(weights, values, keys, sizes, {sums, ld}, ahead);
        } else {
          multiply<Into::scaled_add>(weights, values, keys, sizes, {sums, ld, keep}, ahead);
        }
      } else if (k0 == 0) {
        clear_rows(state, sums, t.rows, ld);
      }
      if (direct || !last) continue;
      finish();
      write_scaled<T>({sums, ld, keep}, t.rows, a.size, to + r0 * pitch, pitch);
    }
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
