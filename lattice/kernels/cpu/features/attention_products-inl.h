// Products of attention in registers; copies and transposes of the rows of one head, and their
// prefetch. Included once per Highway target.
#include <algorithm>

#include "lattice/kernels/cpu/features/attention.h"
#include "lattice/kernels/cpu/features/block-inl.h"

#if defined(LATTICE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H
#undef LATTICE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H
#else
#define LATTICE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H
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

inline int64_t vectors_of(int64_t n) { return (n + kLanes - 1) / kLanes; }
// Rows of copies are padded to whole vectors. The odd number of cache lines spreads a column of
// rows over all sets of the first-level cache.
inline int64_t padded_size(int64_t size) { return round_up(size, 2 * kLine) + kLine; }

// Rows of one head as they lie in memory: row r is at x + r * pitch, `size` values; nothing from
// `end` on is read.
template <typename T>
struct HeadRows {
  const T* x;
  const T* end;
  int64_t pitch, size;
};

// Segment s and one head of q, k, v or an array like them.
template <typename T>
HeadRows<T> query_rows(const Attention& a, const void* x, int64_t s, int64_t head) {
  const int64_t pitch = a.heads * a.size;
  const T* base = static_cast<const T*>(x);
  return {base + a.q_offsets[s] * pitch + head * a.size, base + a.q_offsets[a.segments] * pitch,
          pitch, a.size};
}
template <typename T>
HeadRows<T> key_rows(const Attention& a, const void* x, int64_t s, int64_t g) {
  const int64_t pitch = a.kv_heads * a.size;
  const T* base = static_cast<const T*>(x);
  return {base + a.k_offsets[s] * pitch + g * a.size, base + a.k_offsets[a.segments] * pitch, pitch,
          a.size};
}

// Prefetches rows that will soon be read or written, a few at a time, while products are computed.
// The rows of one head lie far apart and share few cache sets, so they do not stay in the cache.
class Ahead {
 public:
  template <typename T>
  void add(const HeadRows<T>& x, int64_t begin, int64_t end) {
    if (begin >= end) return;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    part_[parts_++] = {reinterpret_cast<const char*>(x.x + begin * x.pitch), end - begin,
                       x.pitch * kBytes, x.size * kBytes};
    total_ += end - begin;
  }
  // `steps` calls of step() prefetch all rows.
  void spread_over(int64_t steps) { share_ = steps > 0 ? (total_ + steps - 1) / steps : 0; }
  HWY_INLINE void step() {
    for (int64_t i = 0; i < share_ && now_ < parts_; ++i) {
      Part& p = part_[now_];
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
      for (int64_t j = 0; j < p.bytes; j += 64) __builtin_prefetch(p.at + j, 0, 2);
#endif
      p.at += p.pitch;
      if (--p.count == 0) ++now_;
    }
  }

 private:
  struct Part {
    const char* at;
    int64_t count, pitch, bytes;
  };
  Part part_[8];
  int parts_ = 0, now_ = 0;
  int64_t total_ = 0, share_ = 0;
};

enum class Into { set, scaled, add, scaled_add };

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
  const float* keep = nullptr;  // one factor per row, of Into::scaled and Into::scaled_add
};

// Elements from one row to the next of A, B and C, and from one column of A to the next.
struct Steps {
  int64_t a, column, b, c;
};

// M rows and N vectors of C = A B, keep A B, C + A B or keep C + A B. Pointers that do not overlap
// stay parameters: as members of structs they cost 2.5 % with AVX2.
template <Into kInto, int M, int N>
HWY_INLINE void multiply_block(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                               float* HWY_RESTRICT c, const float* keep, Steps by, int64_t depth) {
  const Floats d;
  Vec sum[M * N];
  unroll<M * N>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  int64_t at[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { at[m] = m * by.a; });
  for (int64_t t = 0; t < depth; ++t, a += by.column, b += by.b) {
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
      float* to = c + m * by.c + v * kLanes;
      Vec total = sum[m * N + v];
      if constexpr (kInto == Into::scaled) total = hn::Mul(total, hn::Set(d, keep[m]));
      if constexpr (kInto == Into::add) total = hn::Add(hn::LoadU(d, to), total);
      if constexpr (kInto == Into::scaled_add)
        total = hn::MulAdd(hn::LoadU(d, to), hn::Set(d, keep[m]), total);
      hn::StoreU(total, d, to);
    });
  });
}

template <Into kInto, int N>
HWY_NOINLINE void multiply_panel(const Left& a, const Right& b, int64_t depth, const Result& c,
                                 Ahead& ahead) {
  const Steps by{a.row, a.step, b.ld, c.ld};
  const int64_t rows = a.rows;
  int64_t m = 0;
  for (; m + kGroup <= rows; m += kGroup) {
    ahead.step();
    multiply_block<kInto, kGroup, N>(a.x + m * by.a, b.x, c.x + m * by.c, c.keep + m, by, depth);
  }
  unroll<kGroup - 1>([&](auto left) LATTICE_INLINE_LAMBDA {
    if (rows - m == left + 1)
      multiply_block<kInto, left + 1, N>(a.x + m * by.a, b.x, c.x + m * by.c, c.keep + m, by,
                                         depth);
  });
}

// How many times a product with these rows and vectors calls ahead.step().
inline int64_t steps_of(int64_t rows, int64_t vectors) {
  return rows / kGroup * ((vectors + kPanel - 1) / kPanel);
}

// C (rows, vectors * kLanes) from A (rows, depth) and B (depth, vectors * kLanes).
template <Into kInto>
void multiply(const Left& a, const Right& b, int64_t depth, int64_t vectors, const Result& c,
              Ahead& ahead) {
  for (int64_t v = 0; v < vectors; v += kPanel) {
    const Right panel{b.x + v / kPanel * b.panel, b.panel, b.ld};
    const Result columns{c.x + v * kLanes, c.ld, c.keep};
    unroll<kPanel>([&](auto n) {
      if (std::min<int64_t>(kPanel, vectors - v) == n + 1)
        multiply_panel<kInto, n + 1>(a, panel, depth, columns, ahead);
    });
  }
}

// dst (rows, ld) = rows of x, widened.
template <typename T>
HWY_NOINLINE void copy_head(const HeadRows<T>& x, int64_t begin, int64_t rows,
                            float* HWY_RESTRICT dst, int64_t ld) {
  const Floats d;
  for (int64_t r = 0; r < rows; ++r, dst += ld) {
    const T* from = x.x + (begin + r) * x.pitch;
    int64_t j = 0;
    for (; j + kLanes <= x.size; j += kLanes) hn::Store(load(d, from + j), d, dst + j);
    if (j < x.size) hn::Store(load_until(d, from + j, x.end), d, dst + j);
  }
}

#if HWY_TARGET != HWY_SCALAR  // it has no vectors of 4
// Four values of each of the rows i, i + 4, i + 8, ..., kLanes in all; row r is at x + at[r].
template <typename T, class Read>
HWY_INLINE Vec fours(const T* x, const int64_t* at, int i, const Read& read) {
  if constexpr (kLanes == 4) {
    return read(x + at[i]);
  } else if constexpr (kLanes == 8) {
    return hn::Combine(Floats(), read(x + at[i + 4]), read(x + at[i]));
  } else {
    const hn::Half<Floats> half;
    return hn::Combine(Floats(), hn::Combine(half, read(x + at[i + 12]), read(x + at[i + 8])),
                       hn::Combine(half, read(x + at[i + 4]), read(x + at[i])));
  }
}
#endif

// The panels of factor times the transpose of rows of x, widened: panel p is (size, kPanelWidth).
// Values for rows up to the next multiple of kLanes are undefined.
template <typename T>
HWY_NOINLINE void transpose_panels(const HeadRows<T>& x, int64_t begin, int64_t rows, float factor,
                                   float* HWY_RESTRICT to) {
  const int64_t size = x.size, panel = round_up(size, 4) * kPanelWidth;
  const T* from = x.x + begin * x.pitch;
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < size; ++j)
      to[r / kPanelWidth * panel + j * kPanelWidth + r % kPanelWidth] =
          factor * widen(from[r * x.pitch + j]);
#else
  const Floats d;
  const hn::FixedTag<float, 4> d4;
  const hn::RepartitionToWide<hn::RebindToUnsigned<Floats>> dw;
  const Vec by = hn::Set(d, factor);
  int64_t at[kLanes];
  const auto block = [&](int64_t j, float* column, const auto& read) LATTICE_INLINE_LAMBDA {
    const T* here = from + j;
    const Vec a = hn::Mul(by, fours(here, at, 0, read)), b = hn::Mul(by, fours(here, at, 1, read)),
              c = hn::Mul(by, fours(here, at, 2, read)), e = hn::Mul(by, fours(here, at, 3, read));
    const auto ab0 = hn::BitCast(dw, hn::InterleaveLower(d, a, b)),
               ab1 = hn::BitCast(dw, hn::InterleaveUpper(d, a, b)),
               ce0 = hn::BitCast(dw, hn::InterleaveLower(d, c, e)),
               ce1 = hn::BitCast(dw, hn::InterleaveUpper(d, c, e));
    float* row = column + j * kPanelWidth;
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, ab0, ce0)), d, row);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, ab0, ce0)), d, row + kPanelWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, ab1, ce1)), d, row + 2 * kPanelWidth);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, ab1, ce1)), d, row + 3 * kPanelWidth);
  };
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) at[i] = std::min(r + i, rows - 1) * x.pitch;
    float* column = to + r / kPanelWidth * panel + r % kPanelWidth;
    int64_t j = 0;
    for (; j + 4 <= size; j += 4)
      block(j, column, [&](const T* p) LATTICE_INLINE_LAMBDA { return load(d4, p); });
    if (j < size)
      block(j, column, [&](const T* p) LATTICE_INLINE_LAMBDA { return load_until(d4, p, x.end); });
  }
#endif
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
