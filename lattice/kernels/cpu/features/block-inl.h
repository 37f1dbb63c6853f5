// What the register kernels of conv and outer share: vectors, unrolled loops, windows of rows
// copied to float32. Included once per Highway target.
#include <cstdint>
#include <utility>

#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types-inl.h"

#if defined(LATTICE_KERNELS_CPU_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_BLOCK_INL_H
#undef LATTICE_KERNELS_CPU_BLOCK_INL_H
#else
#define LATTICE_KERNELS_CPU_BLOCK_INL_H
#endif

// Lambdas of these kernels are always inlined, because only then does the compiler keep arrays of
// vectors in registers.
#undef LATTICE_INLINE_LAMBDA
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
#define LATTICE_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))
#else
#define LATTICE_INLINE_LAMBDA HWY_ATTR
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
// Copied rows begin on cache lines.
constexpr int64_t kLine = 16;
static_assert(kLine % kLanes == 0);

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// f(0), ..., f(N - 1) with constant arguments, so arrays of vectors indexed by them live in
// registers.
template <class F, int... I>
HWY_INLINE void unroll_list(std::integer_sequence<int, I...>, F&& f) {
  (f(std::integral_constant<int, I>()), ...);
}
template <int N, class F>
HWY_INLINE void unroll(F&& f) {
  unroll_list(std::make_integer_sequence<int, N>(), f);
}

// Hides the origin of a value from the compiler. GCC 12 otherwise computes address + constant for
// each step of an unrolled loop ahead of the loop. It keeps the results on the stack, which costs a
// load per load (132 -> 105 GFLOP/s at 32 channels).
HWY_INLINE void pin(int64_t& value) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(value));
#endif
  (void)value;
}

// Rows scattered in memory are prefetched long before they are read. They do not begin on cache
// lines, so the last value may lie on a line of its own.
template <typename T>
HWY_INLINE void prefetch_row(const T* row, int64_t c) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  for (int64_t j = 0; j < c; j += 64 / static_cast<int64_t>(sizeof(T)))
    __builtin_prefetch(row + j, 0, 3);
  __builtin_prefetch(row + c - 1, 0, 3);
#endif
  (void)row;
  (void)c;
}

// Columns [column, column + columns) of the rows order[0], order[1], ... of x (n, pitch). Null
// order: the rows 0, 1, ... themselves.
template <typename T>
struct SomeColumns {
  const T* x;
  int64_t n, pitch, column, columns;
  const int32_t* order;
};

// Copies the columns of rows [begin, end) to dst, as float32. Each row of dst has `stride` values,
// a multiple of kLine; what follows the columns is undefined.
template <typename T>
HWY_NOINLINE void copy_columns(const SomeColumns<T>& from, int64_t begin, int64_t end,
                               float* HWY_RESTRICT dst, int64_t stride) {
  constexpr int64_t kAhead = 16;
  const Floats d;
  const T* x = from.x;
  const int64_t pitch = from.pitch, column = from.column, columns = from.columns;
  const int32_t* order = from.order;
  const T* x_end = x + from.n * pitch;
  for (int64_t p = begin; p < end; ++p, dst += stride) {
    if (order && p + kAhead < end) prefetch_row(x + order[p + kAhead] * pitch + column, columns);
    const T* row = x + (order ? order[p] : p) * pitch + column;
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) hn::Store(load(d, row + j), d, dst + j);
    if (j < columns) hn::Store(load_until(d, row + j, x_end), d, dst + j);
  }
}

// The same for whole rows of c values.
template <typename T>
void copy_rows(const T* x, int64_t n, int64_t c, const int32_t* order, int64_t begin, int64_t end,
               float* HWY_RESTRICT dst, int64_t stride) {
  copy_columns<T>({x, n, c, 0, c, order}, begin, end, dst, stride);
}

// Copied rows in a ring of a power of two of rows: position p is at x + (p & mask) * stride.
struct Rows {
  const float* x;
  int64_t stride;
  int32_t mask;
  HWY_INLINE int64_t at(int32_t p) const { return static_cast<int64_t>(p & mask) * stride; }
};

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
