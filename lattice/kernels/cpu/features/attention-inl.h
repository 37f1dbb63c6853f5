// Tiles of attention: logits with bias and masks.
// Included once per Highway target.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lattice/kernels/cpu/base/exp-inl.h"
#include "lattice/kernels/cpu/features/attention_products-inl.h"

#if defined(LATTICE_KERNELS_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ATTENTION_INL_H
#undef LATTICE_KERNELS_CPU_ATTENTION_INL_H
#else
#define LATTICE_KERNELS_CPU_ATTENTION_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

constexpr float kInf = std::numeric_limits<float>::infinity();
// Logits of a tile are in units of log 2, so weights are powers of 2.
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.69314718055994531f;
// The vectors of a row of n logits, which is padded to a multiple of kLine values because sums are
// taken over kLine values at a time.
inline int64_t vectors_of_row(int64_t n) { return round_up(n, kLine) / kLanes; }

// One tile of logits: queries from q0 of segment s, keys from k0, both counted inside the segment.
struct Tile {
  int64_t s, head, q0, rows, k0, keys;
};

// Finds the entries of the position table for a query and its keys.
struct TableReader {
  const PositionTable* t = nullptr;
  int32_t first[3] = {}, stride[3] = {1, 1, 1};

  explicit TableReader(const PositionTable& table) : t(&table) {
    for (int a = table.axes - 2; a >= 0 && table.joint; --a)
      stride[a] = stride[a + 1] * (2 * table.bounds[a + 1] + 1);
    for (int a = 1; a < table.axes && !table.joint; ++a)
      first[a] = first[a - 1] + 2 * table.bounds[a - 1] + 1;
  }
  // The entry of axis a for one vector of keys.
  template <class DI>
  HWY_INLINE hn::Vec<DI> entry(DI di, int a, int32_t query, const int32_t* keys) const {
    const auto bound = hn::Set(di, t->bounds[a]);
    const auto p = hn::Sub(hn::Set(di, query), hn::LoadU(di, keys));
    const auto cut = hn::Add(hn::Min(hn::Max(p, hn::Neg(bound)), bound), bound);
    return hn::Add(hn::Mul(cut, hn::Set(di, stride[a])), hn::Set(di, first[a]));
  }
  // Calls f(entries) for each lookup of one vector of keys; k_positions (axes, kTileKeys).
  template <class DI, class F>
  HWY_INLINE void lookups(DI di, const int32_t* query, const int32_t* k_positions,
                          const F& f) const {
    auto e = entry(di, 0, query[0], k_positions);
    for (int a = 1; a < t->axes; ++a) {
      if (!t->joint) f(e);
      const auto next = entry(di, a, query[a], k_positions + a * kTileKeys);
      e = t->joint ? hn::Add(e, next) : next;
    }
    f(e);
  }
};

// What all tiles of a call share.
struct Context {
  const Attention& a;
  const int64_t* pairs;  // per segment: number of (query, key) pairs before it
  TableReader reader;
  int64_t queries(int64_t s) const { return int64_t{a.q_offsets[s + 1]} - a.q_offsets[s]; }
  int64_t keys(int64_t s) const { return int64_t{a.k_offsets[s + 1]} - a.k_offsets[s]; }
  const float* bias_row(const Tile& t, int64_t r) const {
    const int64_t n = keys(t.s);
    return a.bias + a.heads * pairs[t.s] + (t.head * queries(t.s) + t.q0 + r) * n + t.k0;
  }
  // Keys of the tile that row r sees.
  int64_t seen(const Tile& t, int64_t r) const {
    if (!a.causal) return t.keys;
    const int64_t last = t.q0 + r + keys(t.s) - queries(t.s) - t.k0;
    return std::clamp<int64_t>(last + 1, 0, t.keys);
  }
};

// (axes, kTileKeys) positions of a tile's keys.
HWY_INLINE void copy_positions(const Context& x, const Tile& t, int32_t* to) {
  const PositionTable& p = x.a.positions;
  const int32_t* from = p.k_positions + (x.a.k_offsets[t.s] + t.k0) * p.axes;
  for (int64_t j = 0; j < t.keys; ++j)
    for (int a = 0; a < p.axes; ++a) to[a * kTileKeys + j] = from[j * p.axes + a];
}

// Adds bias and masks to row r of the tile, and sets the up to kLine values after its keys to
// -infinity.
HWY_NOINLINE void finish_logits(const Context& x, const Tile& t, int64_t r,
                                const int32_t* k_positions, float* HWY_RESTRICT row) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const Vec unit = hn::Set(d, kLog2E);
  if (x.a.bias) {
    const float* bias = x.bias_row(t, r);
    int64_t j = 0;
    for (; j + kLanes <= t.keys; j += kLanes)
      hn::Store(hn::MulAdd(unit, hn::LoadU(d, bias + j), hn::Load(d, row + j)), d, row + j);
    for (; j < t.keys; ++j) row[j] = std::fma(kLog2E, bias[j], row[j]);
  }
  if (const PositionTable& p = x.a.positions; p.table) {
    const float* table = p.table + t.head * p.size;
    const int32_t* query = p.q_positions + (x.a.q_offsets[t.s] + t.q0 + r) * p.axes;
    for (int64_t j = 0; j < t.keys; j += kLanes) {
      Vec sum = hn::Load(d, row + j);
      x.reader.lookups(di, query, k_positions + j, [&](auto e) HWY_ATTR {
        sum = hn::MulAdd(unit, hn::GatherIndex(d, table, e), sum);
      });
      hn::Store(sum, d, row + j);
    }
  }
  if (x.a.mask) {
    const uint8_t* mask = x.a.mask + x.pairs[t.s] + (t.q0 + r) * x.keys(t.s) + t.k0;
    for (int64_t j = 0; j < t.keys; ++j)
      if (!mask[j]) row[j] = -kInf;
  }
  const int64_t end = round_up(t.keys, kLine);
  for (int64_t j = x.seen(t, r); j < end; ++j) row[j] = -kInf;
}

// The number of keys of a segment that at least one of the queries before q_end sees.
HWY_INLINE int64_t last_key(const Context& x, int64_t s, int64_t q_end) {
  if (!x.a.causal) return x.keys(s);
  return std::clamp<int64_t>(q_end + x.keys(s) - x.queries(s), 0, x.keys(s));
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
