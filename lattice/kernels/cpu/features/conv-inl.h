// Register kernels of conv: all edges of one list that fall on one tile, for one panel of output
// columns.
//
//   y[out[e] - first_out, :] += x[in[e], :] W
//   of `width` columns; W is the packed block of one offset and panel
//
// or, for a list of every row with itself, the finished rows themselves (`Finish`).
//
// Included once per Highway target.
#include "lattice/kernels/cpu/features/block-inl.h"
#include "lattice/kernels/cpu/features/conv.h"

#if defined(LATTICE_KERNELS_CPU_CONV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_CONV_INL_H
#undef LATTICE_KERNELS_CPU_CONV_INL_H
#else
#define LATTICE_KERNELS_CPU_CONV_INL_H
#endif

// Vectors of 16: see `broadcast`.
#undef LATTICE_PAIRED
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define LATTICE_PAIRED 1
#else
#define LATTICE_PAIRED 0
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Rows of outputs have more panels than with vectors of 16, and each panel fewer sums.
constexpr bool kNarrow = !LATTICE_PAIRED;

// Prefetches a cache line that is read much later into the second-level cache.
HWY_INLINE void prefetch_later(const float* at) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(at, 0, 2);
#endif
  (void)at;
}

struct ListCall {
  Rows rows;
  const int32_t* in;
  const int32_t* out;
  int64_t n;
  int64_t c_in;
  const float* w;
  float* y;
  int32_t first_out;
  bool scattered;  // rows are asked for ahead
  // For lists of every row with itself: the row to prefetch with row 0, and how many of its
  // columns.
  const float* next = nullptr;
  int64_t next_columns = 0;
};

// Turns the sums v of a row into the result: v + bias, then relu((v + bias - mean) * scale + shift
// + residual), rounded once. Vectors hold the columns of a panel; rows are those of y.
template <typename T>
struct Finish {
  const float* bias;  // zeros where there is none
  const float* mean;  // null: no norm, and neither scale nor shift
  const float* scale;
  const float* shift;
  const T* residual;  // or null
  bool relu;
  T* y;
  int64_t pitch;                   // of y and the residual
  int64_t columns;                 // that are written
  const int32_t* order = nullptr;  // position -> row, if any; for rows of a list

  bool plain() const { return !mean && !residual && !relu; }
  // Lanes from column c of the row that begins `at` values after the first.
  HWY_INLINE void put(Vec v, int64_t at, int64_t c) const {
    const Floats d;
    v = hn::Add(v, hn::Load(d, bias + c));
    if (mean) {
      v = hn::Mul(hn::Sub(v, hn::Load(d, mean + c)), hn::Load(d, scale + c));
      v = hn::Add(v, hn::Load(d, shift + c));
    }
    if (residual) {
      const T* r = residual + at + c;
      v = hn::Add(v,
                  c + kLanes <= columns ? load(d, r) : load_until(d, r, residual + at + columns));
    }
    // NaN stays NaN: only what is below 0 becomes 0.
    if (relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    store(v, d, y + at + c, columns - c);
  }
};

// Input channels in pairs (kPaired): a vector holds half as many columns, each twice, for channels
// c and c + 1. Both values of x come with one load. At the end the two sums of a column are added.
// With one or two vectors of columns an ordinary step is bound by its loads, not by arithmetic.
// Rows of W are interleaved accordingly. One AVX-512 core, rows in the first-level cache, GFLOP/s:
// 16 columns 73 plain, 93 as two half vectors, 110 paired; 32 columns 132 plain, 147 paired; 64
// columns 157 plain.
template <bool kPaired>
HWY_INLINE Vec broadcast(const float* HWY_RESTRICT x, bool whole) {
  const Floats d;
#if LATTICE_PAIRED
  if constexpr (kPaired) {
    const hn::Repartition<uint64_t, Floats> d64;
    uint64_t bits = 0;
    std::memcpy(&bits, x, whole ? 8 : 4);
    return hn::BitCast(d, hn::Set(d64, bits));
  }
#endif
  (void)whole;
  return hn::Set(d, *x);
}
// The sums of one vector of columns.
template <bool kPaired>
HWY_INLINE Vec fold(const Vec* HWY_RESTRICT sum) {
#if LATTICE_PAIRED
  const Floats d;
  if constexpr (kPaired)
    return hn::Add(hn::ConcatEven(d, sum[1], sum[0]), hn::ConcatOdd(d, sum[1], sum[0]));
#endif
  return sum[0];
}

template <int M, int NV, bool kPaired>
HWY_INLINE void step(const float* HWY_RESTRICT x, const int64_t (&at)[M],
                     const float* HWY_RESTRICT w, bool whole, Vec (&sum)[M * NV]) {
  const Floats d;
  Vec b[NV];
  unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA { b[v] = hn::Load(d, w + v * kLanes); });
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    const Vec a = broadcast<kPaired>(x + at[m], whole);
    unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA {
      sum[m * NV + v] = hn::MulAdd(a, b[v], sum[m * NV + v]);
    });
  });
}

// Products of M edges with NV vectors of sums each; put(m, v, sums of edge e + m and vector v).
template <int M, int NV, bool kPaired, class Put>
HWY_INLINE void multiply_block(const ListCall& call, const int64_t (&rows)[M], Put put) {
  constexpr int64_t kChannels = kPaired ? 2 : 1;
  constexpr int kColumns = kPaired ? NV / 2 : NV;
  constexpr int64_t kSteps = 4;
  const Floats d;
  Vec sum[M * NV];
  unroll<M * NV>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  int64_t at[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { at[m] = rows[m]; });
  const float* HWY_RESTRICT x = call.rows.x;
  const float* HWY_RESTRICT w = call.w;
  int64_t left = call.c_in;
  for (; left >= kSteps * kChannels; left -= kSteps * kChannels) {
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { pin(at[m]); });
    unroll<kSteps>([&](auto s) LATTICE_INLINE_LAMBDA {
      step<M, NV, kPaired>(x + s * kChannels, at, w + s * NV * kLanes, true, sum);
    });
    x += kSteps * kChannels;
    w += kSteps * NV * kLanes;
  }
  for (; left >= kChannels; left -= kChannels, x += kChannels, w += NV * kLanes)
    step<M, NV, kPaired>(x, at, w, true, sum);
  if (left > 0) step<M, NV, kPaired>(x, at, w, false, sum);
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
    unroll<kColumns>([&](auto v) LATTICE_INLINE_LAMBDA {
      put(m, v, fold<kPaired>(sum + m * NV + v * kChannels));
    });
  });
}

// Adds edges e .. e + M to the sums of their output rows.
template <int M, int NV, bool kPaired>
HWY_INLINE void add_block(const ListCall& call, int64_t e) {
  constexpr int64_t kWidth = (kPaired ? NV / 2 : NV) * kLanes;
  const Floats d;
  int64_t rows[M];
  unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA { rows[m] = call.rows.at(call.in[e + m]); });
  multiply_block<M, NV, kPaired>(call, rows, [&](auto m, auto v, Vec total) LATTICE_INLINE_LAMBDA {
    float* HWY_RESTRICT y =
        call.y + static_cast<int64_t>(call.out[e + m] - call.first_out) * kWidth + v * kLanes;
    hn::Store(hn::Add(hn::Load(d, y), total), d, y);
  });
}

template <int M, int NV, bool kPaired>
void add_list(const ListCall& given) {
  const ListCall call = given;
  constexpr int64_t kAhead = 3 * M;
  int64_t e = 0;
  for (; e + M <= call.n; e += M) {
    if (call.scattered && e + kAhead + M <= call.n)
      for (int64_t m = 0; m < M; ++m)
        prefetch_row(call.rows.x + call.rows.at(call.in[e + kAhead + m]), call.c_in);
    add_block<M, NV, kPaired>(call, e);
  }
  unroll<M - 1>([&](auto m) LATTICE_INLINE_LAMBDA {
    if (call.n - e == m + 1) add_block<m + 1, NV, kPaired>(call, e);
  });
}

// Finished rows of lists in which every output row has one edge. No sums are in memory, because
// nothing is added to them. A row is written while the next ones are multiplied.
// !kListed: every row with itself, from output row call.first_out on. With AVX2, shares of sgemm at
// C = 64 / 128 / 256: 0.53 -> 0.73, 0.64 -> 0.86, 0.71 -> 0.97.
template <int M, int NV, bool kPaired, bool kListed, typename T>
void finish_list(const ListCall& given, const Finish<T>& given_finish) {
  const ListCall call = given;
  const Finish<T> finish = given_finish;
  const auto row_of = [&](int64_t e) LATTICE_INLINE_LAMBDA -> int64_t {
    if constexpr (!kListed) return call.first_out + e;
    const int32_t position = call.out[e];
    return finish.order ? finish.order[position] : position;
  };
  const auto block = [&](auto count, int64_t e) LATTICE_INLINE_LAMBDA {
    constexpr int kCount = decltype(count)::value;
    int64_t rows[kCount];
    unroll<kCount>([&](auto m) LATTICE_INLINE_LAMBDA {
      rows[m] = kListed ? call.rows.at(call.in[e + m]) : (e + m) * call.rows.stride;
    });
    multiply_block<kCount, NV, kPaired>(
        call, rows, [&](auto m, auto v, Vec total) LATTICE_INLINE_LAMBDA {
          finish.put(total, row_of(e + m) * finish.pitch, v * kLanes);
        });
  };
  int64_t e = 0;
  for (; e + M <= call.n; e += M) {
    if constexpr (kListed) {
      if (finish.order && e + 3 * M <= call.n)
        unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
          const int64_t at = row_of(e + 2 * M + m) * finish.pitch;
          prefetch_row(finish.y + at, finish.columns);
          if (finish.residual) prefetch_row(finish.residual + at, finish.columns);
        });
    } else if constexpr (kNarrow) {
      for (int64_t c = 0; c < call.next_columns; c += kLine)
        unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
          prefetch_later(call.next + (e + m) * call.rows.stride + c);
        });
    }
    block(std::integral_constant<int, M>(), e);
  }
  unroll<M - 1>([&](auto m) LATTICE_INLINE_LAMBDA {
    if (call.n - e == m + 1) block(std::integral_constant<int, m + 1>(), e);
  });
}

// N vectors of columns from c of the sum of n rows.
template <int N>
HWY_INLINE void sum_bucket(const Rows& rows, const int32_t* HWY_RESTRICT in, int64_t n, int64_t c,
                           float* HWY_RESTRICT to) {
  const Floats d;
  Vec sum[N];
  const float* first = rows.x + rows.at(in[0]) + c;
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA { sum[v] = hn::LoadU(d, first + v * kLanes); });
  for (int64_t i = 1; i < n; ++i) {
    const float* row = rows.x + rows.at(in[i]) + c;
    unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
      sum[v] = hn::Add(sum[v], hn::LoadU(d, row + v * kLanes));
    });
  }
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA { hn::Store(sum[v], d, to + c + v * kLanes); });
}

// One channel per group: y[o, c] += x[i, c] w[c].
template <int NV>
void add_list_depthwise(const ListCall& call) {
  const Floats d;
  Vec w[NV];
  unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA { w[v] = hn::Load(d, call.w + v * kLanes); });
  for (int64_t e = 0; e < call.n; ++e) {
    const float* HWY_RESTRICT x = call.rows.x + call.rows.at(call.in[e]);
    float* HWY_RESTRICT y =
        call.y + static_cast<int64_t>(call.out[e] - call.first_out) * (NV * kLanes);
    unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA {
      hn::Store(hn::MulAdd(hn::LoadU(d, x + v * kLanes), w[v], hn::Load(d, y + v * kLanes)), d,
                y + v * kLanes);
    });
  }
}

// Kernels by the number of vectors of a panel's columns. M: as many sums as there are registers,
// but not more rows than there are registers for their addresses.
template <int M, int NV, bool kPaired>
struct Block {};
#if LATTICE_PAIRED
using Block1 = Block<8, 2, true>;
using Block2 = Block<6, 4, true>;
using Block3 = Block<8, 3, false>;
using Block4 = Block<6, 4, false>;
#else
using Block1 = Block<8, 1, false>;
#if HWY_ARCH_ARM_A64
using Block2 = Block<8, 2, false>;
using Block3 = Block<8, 3, false>;
using Block4 = Block<6, 4, false>;
#else
using Block2 = Block<6, 2, false>;
#endif
#endif

struct ListKernel {
  void (*add)(const ListCall&);
  void (*add_depthwise)(const ListCall&);
  bool paired;
};
template <int M, int NV, bool kPaired>
constexpr ListKernel list_kernel(Block<M, NV, kPaired>) {
  return {&add_list<M, NV, kPaired>, &add_list_depthwise < kPaired ? NV / 2 : NV >, kPaired};
}
template <typename T>
struct FinishKernel {
  void (*same)(const ListCall&, const Finish<T>&);    // rows with themselves
  void (*listed)(const ListCall&, const Finish<T>&);  // rows of a list, if vectors are narrow
};
template <typename T, int M, int NV, bool kPaired>
constexpr FinishKernel<T> finish_kernel(Block<M, NV, kPaired>) {
  if constexpr (kNarrow)
    return {&finish_list<M, NV, kPaired, false, T>, &finish_list<M, NV, kPaired, true, T>};
  else
    return {&finish_list<M, NV, kPaired, false, T>, nullptr};
}
#if LATTICE_PAIRED || HWY_ARCH_ARM_A64
constexpr ListKernel kListKernels[] = {list_kernel(Block1()), list_kernel(Block2()),
                                       list_kernel(Block3()), list_kernel(Block4())};
template <typename T>
constexpr FinishKernel<T> kFinishKernels[] = {
    finish_kernel<T>(Block1()), finish_kernel<T>(Block2()), finish_kernel<T>(Block3()),
    finish_kernel<T>(Block4())};
#else
constexpr ListKernel kListKernels[] = {list_kernel(Block1()), list_kernel(Block2())};
template <typename T>
constexpr FinishKernel<T> kFinishKernels[] = {finish_kernel<T>(Block1()),
                                              finish_kernel<T>(Block2())};
#endif
constexpr int64_t kMaxVectors =
    static_cast<int64_t>(sizeof(kListKernels) / sizeof(kListKernels[0]));

// How the sums of a panel become output rows: bias, norm, residual and ReLU, rounded once.

// Turns the sums of a panel into results, with the constants of its columns.
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
              .pitch = args.shape.c_out,
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
