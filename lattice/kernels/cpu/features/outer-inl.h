// Sums of outer products over edges, held in vector registers; for outer.cpp, once per instruction
// set.
#if defined(LATTICE_KERNELS_CPU_OUTER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_OUTER_INL_H
#undef LATTICE_KERNELS_CPU_OUTER_INL_H
#else
#define LATTICE_KERNELS_CPU_OUTER_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Whether there are 32 vector registers (AVX-512, 64-bit Arm) rather than 16.
constexpr bool kManyRegisters = (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64;
// Whether rows are packed into panels: the rows of AVX-512 are long enough to be read by index.
constexpr bool kPanels = !(HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3);
constexpr int kOuterVectors = kManyRegisters ? 4 : 2;
template <int NV>
constexpr int channel_block() {
  return (kManyRegisters ? 24 : 12) / NV;
}

constexpr int64_t kAhead =
    8;  // edges between the one whose rows are fetched and the one whose rows are used

// n edges and the rows of both ends. Rows of `ahead` edges, kAhead further on, may be fetched
// early.
struct OuterEdges {
  const float* x;
  int64_t x_stride;
  const int32_t* in;
  const float* y;
  int64_t y_stride;
  const int32_t* out;
  int64_t n, ahead;
};

// Calls add(e) for all edges and fetches values `first` and `last` of input rows early. Outputs
// ascend: the processor fetches them by itself.
template <typename Add>
HWY_INLINE void for_edges(const OuterEdges& edges, int64_t first, int64_t last, Add add) {
  const float* HWY_RESTRICT x = edges.x;
  const int32_t* HWY_RESTRICT in = edges.in;
  const int64_t x_stride = edges.x_stride, ahead = edges.ahead;
  for (int64_t e = 0; e < ahead; ++e) {
    const float* next = x + in[e + kAhead] * x_stride;
    hwy::Prefetch(next + first);
    hwy::Prefetch(next + last);
    add(e);
  }
  for (int64_t e = ahead; e < edges.n; ++e) add(e);
}

// sums[c, :] += sum over the edges of x[in[e], c] y[out[e], :] for M channels and NV vectors.
template <int M, int NV>
void sum_block(const OuterEdges& edges, int64_t x_column, int64_t y_column, int64_t first,
               int64_t last, float* HWY_RESTRICT sums) {
  const Floats d;
  const float* HWY_RESTRICT x = edges.x + x_column;
  const float* HWY_RESTRICT y = edges.y + y_column;
  const int32_t* HWY_RESTRICT in = edges.in;
  const int32_t* HWY_RESTRICT out = edges.out;
  const int64_t x_stride = edges.x_stride, y_stride = edges.y_stride;
  Vec sum[M * NV];
  unroll<M * NV>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Load(d, sums + i * kLanes); });
  for_edges(edges, first, last, [&](int64_t e) LATTICE_INLINE_LAMBDA {
    const float* HWY_RESTRICT a = x + in[e] * x_stride;
    const float* HWY_RESTRICT b = y + out[e] * y_stride;
    Vec g[NV];
    unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA { g[v] = hn::LoadU(d, b + v * kLanes); });
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      const Vec f = hn::Set(d, a[m]);
      unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA {
        sum[m * NV + v] = hn::MulAdd(f, g[v], sum[m * NV + v]);
      });
    });
  });
  unroll<M * NV>([&](auto i) LATTICE_INLINE_LAMBDA { hn::Store(sum[i], d, sums + i * kLanes); });
}
using SumBlock = void (*)(const OuterEdges&, int64_t, int64_t, int64_t, int64_t, float*);
template <int NV, int... M>
constexpr std::array<SumBlock, sizeof...(M)> sum_block_table(std::integer_sequence<int, M...>) {
  return {&sum_block<M + 1, NV>...};
}

// The same for 16 channels and one vector of 16 columns. One multiplication has four channels and
// four columns, so an edge needs five loads instead of 17: register 4 q + b holds channels 4 q
// .. 4 q + 3, each four lanes wide, of columns 4 b .. 4 b + 3.
constexpr bool kHasQuads = kLanes == 16;
void sum_quads(const OuterEdges& edges, int64_t x_column, int64_t y_column, int64_t first,
               int64_t last, float* sums) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const float* HWY_RESTRICT x = edges.x + x_column;
  const float* HWY_RESTRICT y = edges.y + y_column;
  const int32_t* HWY_RESTRICT in = edges.in;
  const int32_t* HWY_RESTRICT out = edges.out;
  const int64_t x_stride = edges.x_stride, y_stride = edges.y_stride;
  // Block b of row 4 q + j of the sums <-> block j of register 4 q + b.
  HWY_ALIGN float transposed[16 * 16];
  const auto turn = [](const float* from, float* to) {
    for (int q = 0; q < 4; ++q)
      for (int b = 0; b < 4; ++b)
        for (int j = 0; j < 4; ++j)
          std::copy_n(from + (4 * q + j) * 16 + 4 * b, 4, to + (4 * q + b) * 16 + 4 * j);
  };
  turn(sums, transposed);
  Vec sum[16];
  unroll<16>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Load(d, transposed + i * 16); });
  const auto lane_quad = hn::ShiftRight<2>(hn::Iota(di, 0));
  const auto quad0 = hn::IndicesFromVec(d, lane_quad);
  const auto quad1 = hn::IndicesFromVec(d, hn::Add(lane_quad, hn::Set(di, 4)));
  const auto quad2 = hn::IndicesFromVec(d, hn::Add(lane_quad, hn::Set(di, 8)));
  const auto quad3 = hn::IndicesFromVec(d, hn::Add(lane_quad, hn::Set(di, 12)));
  for_edges(edges, first, last, [&](int64_t e) LATTICE_INLINE_LAMBDA {
    const Vec a = hn::LoadU(d, x + in[e] * x_stride);
    const float* HWY_RESTRICT b = y + out[e] * y_stride;
    Vec g[4];
    unroll<4>([&](auto i) LATTICE_INLINE_LAMBDA { g[i] = hn::LoadDup128(d, b + 4 * i); });
    const Vec f[4] = {hn::TableLookupLanes(a, quad0), hn::TableLookupLanes(a, quad1),
                      hn::TableLookupLanes(a, quad2), hn::TableLookupLanes(a, quad3)};
    unroll<16>([&](auto i)
                   LATTICE_INLINE_LAMBDA { sum[i] = hn::MulAdd(f[i / 4], g[i % 4], sum[i]); });
  });
  unroll<16>([&](auto i) LATTICE_INLINE_LAMBDA { hn::Store(sum[i], d, transposed + i * 16); });
  turn(transposed, sums);
}

// The same for `channels` channels, in blocks of nearly equal size. A block fetches the lines where
// it begins and ends.
template <int NV>
void sum_edges(const OuterEdges& edges, int64_t x_column, int64_t channels, int64_t y_column,
               float* sums) {
  constexpr int64_t kM = channel_block<NV>();
  static constexpr auto kBlocks = sum_block_table<NV>(std::make_integer_sequence<int, kM>());
  const bool quads = kHasQuads && NV == 1 && channels % 16 == 0;
  const int64_t most = quads ? 16 : kM, blocks = (channels + most - 1) / most;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t c = channels * b / blocks, end = channels * (b + 1) / blocks;
    const int64_t first = x_column + c, last = x_column + end - 1;
    if (quads)
      sum_quads(edges, x_column + c, y_column, first, last, sums + c * kLanes);
    else
      kBlocks[static_cast<size_t>(end - c - 1)](edges, x_column + c, y_column, first, last,
                                                sums + c * NV * kLanes);
  }
}
using SumEdges = void (*)(const OuterEdges&, int64_t, int64_t, int64_t, float*);
template <int... V>
constexpr std::array<SumEdges, sizeof...(V)> sum_edges_table(std::integer_sequence<int, V...>) {
  return {&sum_edges<V + 1>...};
}
constexpr auto kSumEdges = sum_edges_table(std::make_integer_sequence<int, kOuterVectors>());

// One channel in and out of a group: sums[m] += sum over n edges of x[in[e], m] y[out[e], m],
// `vectors` vectors.
inline void sum_depthwise(const OuterEdges& edges, int64_t x_column, int64_t y_column,
                          int64_t vectors, float* sums) {
  const Floats d;
  for (int64_t v = 0; v < vectors; ++v) {
    const float *x = edges.x + x_column + v * kLanes, *y = edges.y + y_column + v * kLanes;
    Vec sum = hn::Load(d, sums + v * kLanes);
    for (int64_t e = 0; e < edges.n; ++e)
      sum = hn::MulAdd(hn::LoadU(d, x + edges.in[e] * edges.x_stride),
                       hn::LoadU(d, y + edges.out[e] * edges.y_stride), sum);
    hn::Store(sum, d, sums + v * kLanes);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
