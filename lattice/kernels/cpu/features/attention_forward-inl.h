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

// exp(x[i] - base[i]) of kSoftRows rows at once: the chains of one row hide behind the others.
constexpr int kSoftRows = 4;

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

// Rows of logits become exp(logit - base), and total[r] becomes total[r] keep[r] + their sum.
template <int R>
HWY_INLINE void soften_rows(float* HWY_RESTRICT rows, int64_t vectors, const float* base,
                            const float* keep, float* total) {
  const Floats d;
  Vec sum[R][kSumVectors];
  unroll<R * kSumVectors>(
      [&](auto i) LATTICE_INLINE_LAMBDA { sum[i / kSumVectors][i % kSumVectors] = hn::Zero(d); });
  for (int64_t v = 0; v < vectors; v += kSumVectors)
    unroll<R * kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      constexpr int r = i / kSumVectors, n = i % kSumVectors;
      float* at = rows + r * kTileKeys + (v + n) * kLanes;
      const Vec e = exp_vector(d, hn::Sub(hn::Load(d, at), hn::Set(d, base[r])));
      hn::Store(e, d, at);
      sum[r][n] = hn::Add(sum[r][n], e);
    });
  unroll<R>([&](auto r)
                LATTICE_INLINE_LAMBDA { total[r] = total[r] * keep[r] + total_of(sum[r]); });
}

// Turns the logits of a tile into exp(logit - maximum) and updates maximum and sum of each row.
// keep[r] is the factor of what was summed before. `vectors` is a multiple of kSumVectors.
HWY_NOINLINE void soften(float* HWY_RESTRICT logits, int64_t rows, int64_t vectors, float* maximum,
                         float* total, float* keep) {
  const Floats d;
  float before[kTileRows + kLanes], base[kTileRows + kLanes];
  std::copy_n(maximum, rows, before);
  std::fill_n(before + rows, kLanes, 0.0f);
  std::fill_n(base + rows, kLanes, 0.0f);
  int64_t r = 0;
  for (; r + kSoftRows <= rows; r += kSoftRows)
    raise_tops<kSoftRows>(logits + r * kTileKeys, vectors, maximum + r);
  for (; r < rows; ++r) raise_tops<1>(logits + r * kTileKeys, vectors, maximum + r);
  for (r = 0; r < rows; ++r) base[r] = maximum[r] == -kInf ? 0.0f : maximum[r];
  for (r = 0; r < rows; r += kLanes)
    hn::StoreU(exp_vector(d, hn::Sub(hn::LoadU(d, before + r), hn::LoadU(d, base + r))), d,
               keep + r);
  for (r = 0; r + kSoftRows <= rows; r += kSoftRows)
    soften_rows<kSoftRows>(logits + r * kTileKeys, vectors, base + r, keep + r, total + r);
  for (; r < rows; ++r)
    soften_rows<1>(logits + r * kTileKeys, vectors, base + r, keep + r, total + r);
}

struct ForwardScratch {
  int64_t ld, chunk;
  Buffer<float> q, out, k, kt, v, logits, maximum, total;
  Buffer<int32_t> positions;
  ForwardScratch(int64_t size, int64_t rows)
      : ld(padded_size(size)),
        chunk(rows),
        q(rows * ld),
        out(rows * ld),
        k(kTileKeys * ld),
        kt(kTileKeys * round_up(size, 4)),
        v(kTileKeys * ld),
        logits(kTileRows * kTileKeys),
        maximum(rows),
        total(rows),
        positions(3 * kTileKeys) {
    for (Buffer<float>* b : {&q, &k, &kt, &v, &logits}) std::fill(b->begin(), b->end(), 0.0f);
    std::fill(positions.begin(), positions.end(), 0);
  }
};

template <typename T>
void forward_chunk(const Context& x, int64_t s, int64_t head, int64_t q0, int64_t rows, T* out,
                   float* lse, ForwardScratch& w) {
  const Floats d;
  const Attention& a = x.a;
  const int64_t g = head / (a.heads / a.kv_heads), ld = w.ld, sizes = vectors_of(a.size);
  const auto head_rows = [&](const void* from, const int32_t* offsets, int64_t heads, int64_t h) {
    const T* base = static_cast<const T*>(from);
    return HeadRows<T>{base + (offsets[s] * heads + h) * a.size,
                       base + offsets[a.segments] * heads * a.size, heads * a.size, a.size};
  };
  copy_head(head_rows(a.q, a.q_offsets, a.heads, head), q0, rows, a.scale, w.q.data(), ld);
  const HeadRows<T> k = head_rows(a.k, a.k_offsets, a.kv_heads, g),
                    v = head_rows(a.v, a.k_offsets, a.kv_heads, g);
  std::fill_n(w.out.data(), rows * ld, 0.0f);
  std::fill_n(w.maximum.data(), rows, -kInf);
  std::fill_n(w.total.data(), rows, 0.0f);
  const bool changed = a.bias || a.positions.table || a.mask || a.causal;
  const int64_t n = last_key(x, s, q0 + rows);
  for (int64_t k0 = 0; k0 < n; k0 += kTileKeys) {
    const int64_t keys = std::min(kTileKeys, n - k0);
    copy_head(k, k0, keys, 1.0f, w.k.data(), ld);
    transpose_panels(w.k.data(), ld, keys, a.size, w.kt.data());
    copy_head(v, k0, keys, 1.0f, w.v.data(), ld);
    if (a.positions.table) copy_positions(x, {s, head, q0, rows, k0, keys}, w.positions.data());
    for (int64_t r0 = 0; r0 < rows; r0 += kTileRows) {
      const Tile t{s, head, q0 + r0, std::min(kTileRows, rows - r0), k0, keys};
      if (x.seen(t, t.rows - 1) == 0) continue;
      multiply<Into::set>({w.q.data() + r0 * ld, ld, 1, t.rows},
                          {w.kt.data(), round_up(a.size, 4) * kPanelWidth, kPanelWidth}, a.size,
                          vectors_of(keys), {w.logits.data(), kTileKeys});
      float keep[kTileRows + kLanes];
      if (changed || keys % kLine)
        for (int64_t r = 0; r < t.rows; ++r)
          finish_logits(x, t, r, w.positions.data(), w.logits.data() + r * kTileKeys);
      soften(w.logits.data(), t.rows, vectors_of_row(keys), w.maximum.data() + r0,
             w.total.data() + r0, keep);
      multiply<Into::scaled_add>({w.logits.data(), kTileKeys, 1, t.rows},
                                 {w.v.data(), kPanelWidth, ld}, keys, sizes,
                                 {w.out.data() + r0 * ld, ld, keep});
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (a.q_offsets[s] + q0 + r) * a.heads + head;
    const float total = w.total[r];
    // A sum of 0: no key was seen. NaN stays NaN.
    lse[at] = total == 0.0f ? kInf : w.maximum[r] + std::log(total);
    const Vec by = hn::Set(d, total == 0.0f ? 0.0f : 1.0f / total);
    const float* row = w.out.data() + r * ld;
    for (int64_t j = 0; j < a.size; j += kLanes)
      store(hn::Mul(hn::Load(d, row + j), by), d, out + at * a.size + j, a.size - j);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
