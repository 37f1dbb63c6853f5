// How the sums of a convolution become output rows: bias, norm, residual and ReLU (`Finish`),
// rounded once. Included once per Highway target.
#include "lattice/kernels/cpu/features/conv-inl.h"

#if defined(LATTICE_KERNELS_CPU_CONV_FINISH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_CONV_FINISH_INL_H
#undef LATTICE_KERNELS_CPU_CONV_FINISH_INL_H
#else
#define LATTICE_KERNELS_CPU_CONV_FINISH_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// What becomes of the sums of a panel, with the constants of its columns.
template <typename T>
struct Ending {
  HWY_ALIGN float values[4][kMaxVectors * kLanes] = {};
  Finish<T> finish;

  Ending(const ConvArgs& args, const Panel& p) {
    const NormAfter& norm = args.norm;
    for (int64_t c = 0; c < p.columns; ++c) {
      if (args.bias) values[0][c] = widen(static_cast<const T*>(args.bias)[p.column + c]);
      if (!norm.mean) continue;
      values[1][c] = norm.mean[p.column + c];
      values[2][c] = norm.scale[p.column + c];
      values[3][c] = norm.shift[p.column + c];
    }
    const T* residual = static_cast<const T*>(norm.residual);
    finish = {.bias = values[0],
              .mean = norm.mean ? values[1] : nullptr,
              .scale = values[2],
              .shift = values[3],
              .residual = residual ? residual + p.column : nullptr,
              .relu = norm.relu,
              .y = static_cast<T*>(args.y) + p.column,
              .pitch = args.c_out,
              .columns = p.columns};
  }
  Ending(const Ending&) = delete;  // `finish` points into `values`
};

// Calls put(vector of sums, where the row begins, column) for the output positions [first, first +
// n), and sets the sums to 0. Position p is row order[p], or row p without an order.
template <typename T, class Put>
HWY_INLINE void each_row(const Panel& p, const int32_t* order, int64_t first, int64_t n,
                         float* HWY_RESTRICT sums, const Finish<T>& finish, Put put) {
  constexpr int64_t kAhead = 8;
  const Floats d;
  const int64_t width = p.vectors * kLanes, pitch = finish.pitch, columns = p.columns;
  for (int64_t r = first; r < first + n; ++r, sums += width) {
    if (order && r + kAhead < first + n) {
      const int64_t ahead = order[r + kAhead] * pitch;
      prefetch_row(finish.y + ahead, columns);
      if (finish.residual) prefetch_row(finish.residual + ahead, columns);
    }
    const int64_t at = (order ? order[r] : r) * pitch;
    for (int64_t c = 0; c < width; c += kLanes) {
      put(hn::Load(d, sums + c), at, c);
      hn::Store(hn::Zero(d), d, sums + c);
    }
  }
}

// Finishes these rows and writes them; leaves the sums at 0.
template <typename T>
void finish_sums(const ConvArgs& args, const Panel& p, const int32_t* order, int64_t first,
                 int64_t n, float* HWY_RESTRICT sums) {
  const Ending<T> ending(args, p);
  const Finish<T> finish = ending.finish;
  const Floats d;
  // Without a norm the loop has no branches (1 to 3 % of conv with AVX-512).
  if (finish.plain()) {
    const float* HWY_RESTRICT bias = finish.bias;
    T* y = finish.y;
    const int64_t columns = p.columns;
    each_row(p, order, first, n, sums, finish, [&](Vec v, int64_t at, int64_t c) HWY_ATTR {
      store(hn::Add(v, hn::Load(d, bias + c)), d, y + at + c, columns - c);
    });
  } else {
    each_row(p, order, first, n, sums, finish,
             [&](Vec v, int64_t at, int64_t c) HWY_ATTR { finish.put(v, at, c); });
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
