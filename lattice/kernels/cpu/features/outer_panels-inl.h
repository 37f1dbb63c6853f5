// Sums of outer products over edges for narrow vectors: rows are read in place, and many channels
// are packed into panels first. For outer.cpp, once per instruction set.
//
//   sums[c, m] += sum over the edges e, ascending, of x[in[e], c] y[out[e], m]
//
// This is the product of two gathered matrices, in the order of a dense product (Goto and van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). A panel of x holds up to 6
// channels of some edges and is read from front to back. The rows of y stay where they are: one
// panel of columns is one cache line per row. The lines of all edges fit into the first-level cache
// when rows lie an odd number of lines apart.
#if defined(LATTICE_KERNELS_CPU_OUTER_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_OUTER_PANELS_INL_H
#undef LATTICE_KERNELS_CPU_OUTER_PANELS_INL_H
#else
#define LATTICE_KERNELS_CPU_OUTER_PANELS_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/outer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

constexpr int64_t kPanelEdges = 256;   // edges that are packed at a time
constexpr int64_t kPanelChannels = 6;  // of a panel of x, at most
// Panels begin one cache line apart from a power of two, so they do not share cache sets.
constexpr int64_t kPanelX = kPanelEdges * kPanelChannels + kLine;

constexpr int64_t channel_panels(int64_t channels) {
  return (channels + kPanelChannels - 1) / kPanelChannels;
}

// Channels [column, column + channels) of the edges' input rows, panel after panel. A whole panel
// is copied in vectors; the last of them reaches into the next edge, which is written later.
HWY_NOINLINE void pack_x(const OuterEdges& edges, int64_t column, int64_t channels,
                         const float* x_end, float* HWY_RESTRICT to) {
  constexpr int kCopies = (kPanelChannels + kLanes - 1) / kLanes;
  const Floats d;
  const int64_t whole = channels / kPanelChannels, rest = channels % kPanelChannels;
  for (int64_t e = 0; e < edges.n; ++e) {
    const float* HWY_RESTRICT row = edges.x + edges.in[e] * edges.x_stride + column;
    float* HWY_RESTRICT at = to + e * kPanelChannels;
    // The last panel may end with the array.
    for (int64_t p = 0; p + 1 < whole + (rest > 0); ++p, at += kPanelX, row += kPanelChannels)
      unroll<kCopies>([&](auto v) LATTICE_INLINE_LAMBDA {
        hn::StoreU(hn::LoadU(d, row + v * kLanes), d, at + v * kLanes);
      });
    if (rest > 0) at = to + whole * kPanelX + e * rest;
    unroll<kCopies>([&](auto v) LATTICE_INLINE_LAMBDA {
      hn::StoreU(load_until(d, row + v * kLanes, x_end), d, at + v * kLanes);
    });
  }
}

// Where rows of the edges begin, in values from the first row.
inline void find_rows(const int32_t* rows, int64_t n, int64_t stride, int64_t* HWY_RESTRICT to) {
  for (int64_t e = 0; e < n; ++e) to[e] = rows[e] * stride;
}

// n edges: channels of edge e at x + x_at[e], or x + e * M in a panel; columns at y + y_at[e].
struct PanelEdges {
  const float* x;
  const int64_t* x_at;  // null: panels
  const float* y;
  const int64_t* y_at;
  int64_t n;
};

// sums[c, :] += sum over the edges of x[e, c] y[e, :] for M channels and NV vectors.
template <int M, int NV, bool kPacked>
void sum_panel(const PanelEdges& edges, float* HWY_RESTRICT sums) {
  constexpr int kEdges = 4;
  const Floats d;
  const float* HWY_RESTRICT x = edges.x;
  const float* HWY_RESTRICT y = edges.y;
  const int64_t* HWY_RESTRICT x_at = edges.x_at;
  const int64_t* HWY_RESTRICT y_at = edges.y_at;
  Vec sum[M * NV];
  unroll<M * NV>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Load(d, sums + i * kLanes); });
  const auto add = [&](int64_t e) LATTICE_INLINE_LAMBDA {
    const float* HWY_RESTRICT a = kPacked ? x + e * M : x + x_at[e];
    const float* HWY_RESTRICT b = y + y_at[e];
    Vec g[NV];
    unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA { g[v] = hn::LoadU(d, b + v * kLanes); });
    unroll<M>([&](auto m) LATTICE_INLINE_LAMBDA {
      const Vec f = hn::Set(d, a[m]);
      unroll<NV>([&](auto v) LATTICE_INLINE_LAMBDA {
        sum[m * NV + v] = hn::MulAdd(f, g[v], sum[m * NV + v]);
      });
    });
  };
  int64_t n = edges.n;
  for (; n >= kEdges; n -= kEdges) {
    unroll<kEdges>([&](auto e) LATTICE_INLINE_LAMBDA { add(e); });
    x += kPacked ? kEdges * M : 0;
    x_at += kPacked ? 0 : kEdges;
    y_at += kEdges;
  }
  for (int64_t e = 0; e < n; ++e) add(e);
  unroll<M * NV>([&](auto i) LATTICE_INLINE_LAMBDA { hn::Store(sum[i], d, sums + i * kLanes); });
}
using SumPanel = void (*)(const PanelEdges&, float*);
template <int NV, bool kPacked, int... M>
constexpr std::array<SumPanel, sizeof...(M)> sum_panel_table(std::integer_sequence<int, M...>) {
  return {&sum_panel<M + 1, NV, kPacked>...};
}

// One panel of columns with all panels of channels.
template <int NV>
void sum_panels(PanelEdges edges, int64_t channels, float* sums) {
  constexpr auto kWidths = std::make_integer_sequence<int, kPanelChannels>();
  static constexpr auto kPacked = sum_panel_table<NV, true>(kWidths);
  static constexpr auto kInPlace = sum_panel_table<NV, false>(kWidths);
  const auto& blocks = edges.x_at ? kInPlace : kPacked;
  const float* x = edges.x;
  const int64_t n = channel_panels(channels);
  for (int64_t b = 0; b < n; ++b) {
    // In place the blocks have nearly equal size, so none is too small for the pipes.
    const int64_t c = edges.x_at ? channels * b / n : b * kPanelChannels;
    const int64_t end =
        edges.x_at ? channels * (b + 1) / n : std::min(channels, c + kPanelChannels);
    edges.x = x + (edges.x_at ? c : b * kPanelX);
    blocks[static_cast<size_t>(end - c - 1)](edges, sums + c * NV * kLanes);
  }
}
using SumPanels = void (*)(PanelEdges, int64_t, float*);
template <int... V>
constexpr std::array<SumPanels, sizeof...(V)> sum_panels_table(std::integer_sequence<int, V...>) {
  return {&sum_panels<V + 1>...};
}
constexpr auto kSumPanels = sum_panels_table(std::make_integer_sequence<int, kOuterVectors>());

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
