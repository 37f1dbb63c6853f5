// Tiles of attention: products on registers, packing, logits with bias and masks.
// Included once per Highway target.
#include <algorithm>
#include <limits>

#include "lattice/kernels/cpu/base/exp-inl.h"
#include "lattice/kernels/cpu/features/attention.h"
#include "lattice/kernels/cpu/features/block-inl.h"

#if defined(LATTICE_KERNELS_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ATTENTION_INL_H
#undef LATTICE_KERNELS_CPU_ATTENTION_INL_H
#else
#define LATTICE_KERNELS_CPU_ATTENTION_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// A block of a product has kGroup rows and up to kPanel vectors of columns: its sums fill the
// registers.
constexpr int kGroup = 6;
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kPanel = 4;
#else
constexpr int kPanel = 2;
#endif
constexpr int64_t kPanelWidth = kPanel * kLanes;
constexpr int64_t kTileRows = 48;   // queries taken together
constexpr int64_t kTileKeys = 128;  // keys taken together
static_assert(kTileKeys % kPanelWidth == 0);
constexpr float kInf = std::numeric_limits<float>::infinity();

inline int64_t vectors_of(int64_t n) { return (n + kLanes - 1) / kLanes; }
// The same for a row of logits, whose sum is taken by kLine values.
inline int64_t vectors_of_row(int64_t n) { return round_up(n, kLine) / kLanes; }
// Rows of copies are padded to whole vectors. The odd number of cache lines spreads a column of
// rows over all sets of the first-level cache.
inline int64_t padded_size(int64_t size) { return round_up(size, 2 * kLine) + kLine; }

enum class Into { set, add, scaled_add };

struct Left {  // A[m, t] is at x[m * row + t * step]
  const float* x;
  int64_t row, step, rows;
};
struct Right {  // row t of B is at x + t * ld; panel p of kPanelWidth columns begins at x + p *
                // panel
  const float* x;
  int64_t panel, ld;
};
struct Result {  // row m of C is at x + m * ld
  float* x;
  int64_t ld;
  const float* keep = nullptr;  // one factor per row, of Into::scaled_add
};

// M rows of C from row m0 on, N vectors of one panel: A B, C + A B or keep C + A B.
template <Into kInto, int M, int N>
HWY_INLINE void multiply_block(const Left& left, const Right& right, int64_t depth,
                               const Result& result, int64_t m0) {
  const float* HWY_RESTRICT a = left.x + m0 * left.row;
  const float* HWY_RESTRICT b = right.x;
  float* HWY_RESTRICT c = result.x + m0 * result.ld;
  const int64_t row = left.row, step = left.step, ldb = right.ld, ldc = result.ld;
  const Floats d;
  Vec sum[M * N];
  unroll<M * N>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  int64_t at[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { at[m] = m * row; });
  for (int64_t t = 0; t < depth; ++t, a += step, b += ldb) {
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { pin(at[m]); });
    Vec w[N];
    unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA { w[v] = hn::LoadU(d, b + v * kLanes); });
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      const Vec x = hn::Set(d, a[at[m]]);
      unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
        sum[m * N + v] = hn::MulAdd(x, w[v], sum[m * N + v]);
      });
    });
  }
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
      float* to = c + m * ldc + v * kLanes;
      Vec total = sum[m * N + v];
      if constexpr (kInto == Into::add) total = hn::Add(hn::LoadU(d, to), total);
      if constexpr (kInto == Into::scaled_add)
        total = hn::MulAdd(hn::LoadU(d, to), hn::Set(d, result.keep[m0 + m]), total);
      hn::StoreU(total, d, to);
    });
  });
}

template <Into kInto, int N>
HWY_NOINLINE void multiply_panel(const Left& a, const Right& b, int64_t depth, const Result& c) {
  int64_t m = 0;
  for (; m + kGroup <= a.rows; m += kGroup) multiply_block<kInto, kGroup, N>(a, b, depth, c, m);
  unroll<kGroup - 1>([&](auto left) LATTICE_INLINE_LAMBDA {
    if (a.rows - m == left + 1) multiply_block<kInto, left + 1, N>(a, b, depth, c, m);
  });
}

// C (rows, vectors * kLanes) from A (rows, depth) and B (depth, vectors * kLanes).
template <Into kInto>
void multiply(const Left& a, const Right& b, int64_t depth, int64_t vectors, const Result& c) {
  for (int64_t v = 0; v < vectors; v += kPanel) {
    const Right panel{b.x + v / kPanel * b.panel, b.panel, b.ld};
    const Result columns{c.x + v * kLanes, c.ld, c.keep};
    unroll<kPanel>([&](auto n) {
      if (std::min<int64_t>(kPanel, vectors - v) == n + 1)
        multiply_panel<kInto, n + 1>(a, panel, depth, columns);
    });
  }
}

// Rows of one head as they lie in memory: row r is at x + r * pitch, `size` values; nothing at or
// behind `end` is read.
template <typename T>
struct HeadRows {
  const T* x;
  const T* end;
  int64_t pitch, size;
};

// dst (rows, ld) = factor x, widened. The same rows of the next head, which comes next, are asked
// for: with segments of 48 rows they come from far away.
template <typename T>
HWY_NOINLINE void copy_head(const HeadRows<T>& x, int64_t begin, int64_t rows, float factor,
                            float* HWY_RESTRICT dst, int64_t ld) {
  const Floats d;
  const Vec by = hn::Set(d, factor);
  for (int64_t r = 0; r < rows; ++r, dst += ld) {
    const T* from = x.x + (begin + r) * x.pitch;
    if (x.end - from >= 2 * x.size) prefetch_row(from + x.size, x.size);
    int64_t j = 0;
    for (; j + kLanes <= x.size; j += kLanes) hn::Store(hn::Mul(by, load(d, from + j)), d, dst + j);
    if (j < x.size) hn::Store(hn::Mul(by, load_until(d, from + j, x.end)), d, dst + j);
  }
}

// The panels of the transpose of x (rows, ld), depth `size`: panel p is (size, kPanelWidth).
// Rows of x up to the next multiple of 4 and `size` up to the next multiple of 4 are read.
HWY_NOINLINE void transpose_panels(const float* HWY_RESTRICT x, int64_t ld, int64_t rows,
                                   int64_t size, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR  // it has no vectors of 4
  const int64_t panel = round_up(size, 4) * kPanelWidth;
  for (int64_t r = 0; r < round_up(rows, 4); ++r)
    for (int64_t j = 0; j < round_up(size, 4); ++j)
      to[r / kPanelWidth * panel + j * kPanelWidth + r % kPanelWidth] = x[r * ld + j];
#else
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  const int64_t panel = round_up(size, 4) * kPanelWidth;
  for (int64_t r = 0; r < rows; r += 4) {
    float* column = to + r / kPanelWidth * panel + r % kPanelWidth;
    const float* row = x + r * ld;
    for (int64_t j = 0; j < size; j += 4) {
      const auto a = hn::Load(d, row + j), b = hn::Load(d, row + ld + j),
                 c = hn::Load(d, row + 2 * ld + j), e = hn::Load(d, row + 3 * ld + j);
      const auto ab0 = hn::BitCast(dd, hn::InterleaveLower(d, a, b)),
                 ab1 = hn::BitCast(dd, hn::InterleaveUpper(d, a, b)),
                 ce0 = hn::BitCast(dd, hn::InterleaveLower(d, c, e)),
                 ce1 = hn::BitCast(dd, hn::InterleaveUpper(d, c, e));
      float* at = column + j * kPanelWidth;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, ab0, ce0)), d, at);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, ab0, ce0)), d, at + kPanelWidth);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, ab1, ce1)), d, at + 2 * kPanelWidth);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, ab1, ce1)), d, at + 3 * kPanelWidth);
    }
  }
#endif
}

// One tile of logits: queries from q0 of segment s, keys from k0, both counted inside the segment.
struct Tile {
  int64_t s, head, q0, rows, k0, keys;
};

// Where in the table a query finds its keys' biases.
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

// Adds bias and masks to row r of the tile and sets what lies behind its keys to -infinity, up to
// kLine values.
HWY_NOINLINE void finish_logits(const Context& x, const Tile& t, int64_t r,
                                const int32_t* k_positions, float* HWY_RESTRICT row) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  if (x.a.bias) {
    const float* bias = x.bias_row(t, r);
    int64_t j = 0;
    for (; j + kLanes <= t.keys; j += kLanes)
      hn::Store(hn::Add(hn::Load(d, row + j), hn::LoadU(d, bias + j)), d, row + j);
    for (; j < t.keys; ++j) row[j] += bias[j];
  }
  if (const PositionTable& p = x.a.positions; p.table) {
    const float* table = p.table + t.head * p.size;
    const int32_t* query = p.q_positions + (x.a.q_offsets[t.s] + t.q0 + r) * p.axes;
    for (int64_t j = 0; j < t.keys; j += kLanes) {
      Vec sum = hn::Load(d, row + j);
      x.reader.lookups(di, query, k_positions + j,
                       [&](auto e) HWY_ATTR { sum = hn::Add(sum, hn::GatherIndex(d, table, e)); });
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

// Keys of a segment that at least one of the queries [.., q_end) sees.
HWY_INLINE int64_t last_key(const Context& x, int64_t s, int64_t q_end) {
  if (!x.a.causal) return x.keys(s);
  return std::clamp<int64_t>(q_end + x.keys(s) - x.queries(s), 0, x.keys(s));
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
