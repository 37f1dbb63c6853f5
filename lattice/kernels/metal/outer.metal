// u[k, c, m] = sum over the edges (i, o, k) of x[i, c] g[o, m], for each group of channels: the
// gradient of a weight.
//
//   outer_rows   one thread per element of u; any shape
//   outer_tiles  kTile x kTile elements of u per threadgroup of 4 simdgroups
//
// The edges of an offset are split into parts of a fixed length. `parts` has four numbers per part:
// k, begin, end, place in u. Each part is summed in float32 in the order of its edges. Then the
// parts are added in order (segments.metal). So the bits are the same every time, without atomics.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/metal/tiles.metal"
#include "lattice/kernels/portable/conv_sizes.h"

namespace lattice {
using namespace metal;

// What a gradient of a weight reads and writes besides its edges.
template <typename X, typename G, typename U>
struct OuterArrays {
  X x;
  G g;
  device U* u;
};

template <typename X, typename G, typename U>
METAL_FUNC OuterArrays<X, G, U> outer_arrays(X x, G g, device U* u) {
  return {x, g, u};
}

// The parts of the edges of each offset.
template <typename P>
struct PartTable {
  P parts;
  int begin(int part) const thread { return parts[4 * part + 1]; }
  int end(int part) const thread { return parts[4 * part + 2]; }
  // Where the result of a part begins in u, for a group of channels.
  long place(int part, int group, OuterSizes sizes) const thread {
    return parts[4 * part + 3] * long(sizes.stride_k) + group * sizes.stride_g;
  }
};

// Edges by offset.
template <typename I, typename O, typename P>
struct PartEdges {
  PartTable<P> table;
  I in_rows;
  O out_rows;
  int in_row(int e) const thread { return in_rows[e]; }
  int out_row(int e) const thread { return out_rows[e]; }
};

template <typename I, typename O, typename P>
METAL_FUNC PartEdges<I, O, P> part_edges(I in_rows, O out_rows, P parts) {
  return {{parts}, in_rows, out_rows};
}

// One offset, every row with itself.
template <typename P>
struct SameEdges {
  PartTable<P> table;
  int in_row(int e) const thread { return e; }
  int out_row(int e) const thread { return e; }
};

template <typename P>
METAL_FUNC SameEdges<P> same_edges(P parts) {
  return {{parts}};
}

template <typename Edges, typename X, typename G, typename U>
METAL_FUNC void outer_rows(Edges edges, OuterArrays<X, G, U> arrays, OuterSizes sizes, uint3 at) {
  const int groups = sizes.groups, in = sizes.in, out = sizes.out;
  const int column = int(at.x), c = int(at.y), part = int(at.z), group = column / out;
  float sum = 0.0f;
  for (int e = edges.table.begin(part); e < edges.table.end(part); ++e) {
    const size_t from = size_t(edges.in_row(e)) * size_t(groups * in) + size_t(group * in + c),
                 to = size_t(edges.out_row(e)) * size_t(groups * out) + size_t(column);
    sum += float(arrays.x[from]) * float(arrays.g[to]);
  }
  arrays.u[edges.table.place(part, group, sizes) + c * sizes.stride_c + column % out] = U(sum);
}

// The tile of u that a group computes: its part of the edges, its group of channels, and its first
// input and output channel.
struct OuterTile {
  int part, group, c0, m0;
};

template <int kTile>
METAL_FUNC OuterTile outer_tile(uint3 at, OuterSizes sizes) {
  const int columns = (sizes.out + kTile - 1) / kTile;
  return {int(at.x), int(at.z) / columns, int(at.y) * kTile, int(at.z) % columns * kTile};
}

// Takes sums of outer_tiles: rounds and stores what lies inside u.
template <typename T>
struct MatrixOut {
  device T* u;
  OuterSizes sizes;
  void put(int c, int m, float sum) const thread {
    if (c < sizes.in && m < sizes.out) u[c * sizes.stride_c + m] = T(sum);
  }
};

// The values of the next kEdges edges that one of 128 threads holds: kTile channels of x and of g.
// A thread moves 8 neighboring channels of one edge at a time. Where kX is set, the input channels
// of a group are a multiple of 8. Where kG is set, the output channels are.
template <int kTile, int kEdges, bool kX, bool kG, typename T, typename Edges, typename Arrays>
struct OuterStage {
  static constant constexpr int kThreads = 128, kLines = 8 * kThreads / kTile;
  static constant constexpr int kEach = (kEdges + kLines - 1) / kLines;
  // Whether some thread has no edge in some round.
  static constant constexpr bool kRagged = kEdges % kLines != 0;
  Edges edges;
  Arrays arrays;
  OuterSizes sizes;
  OuterTile tile;
  uint t;
  Eight<T> xv[kEach], gv[kEach];

  // The first edge and the first channel of this thread.
  METAL_FUNC int line() const thread { return int(t / uint(kTile / 8)); }
  METAL_FUNC int own() const thread { return int(t % uint(kTile / 8) * 8u); }
  METAL_FUNC bool has_edge(int i) const thread {
    return !kRagged || (line() < kLines && line() + kLines * i < kEdges);
  }
  // Reads edges p .. p + kEdges, those before `end`.
  METAL_FUNC void fetch(int p, int end) thread {
    const int in = sizes.in, out = sizes.out, c = tile.c0 + own(), m = tile.m0 + own();
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const int e = p + line() + kLines * i;
      const bool there = e < end && has_edge(i);
      const int from = there ? edges.in_row(e) : 0, to = there ? edges.out_row(e) : 0;
      xv[i] = load_eight<kX, T>(
          arrays.x, size_t(from) * size_t(sizes.groups * in) + size_t(tile.group * in + c),
          there ? in - c : 0);
      gv[i] = load_eight<kG, T>(
          arrays.g, size_t(to) * size_t(sizes.groups * out) + size_t(tile.group * out + m),
          there ? out - m : 0);
    }
  }
  template <typename Product>
  METAL_FUNC void put(threadgroup T* xs, threadgroup T* gs, Product) thread {
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const int e = line() + kLines * i;
      if (!has_edge(i)) continue;
      const int to = Product::place(e, own());
      store_eight(xs + to, xv[i]);
      store_eight(gs + to, gv[i]);
    }
  }
};

// Sums over the edges begin .. end; product.add(x, g) takes kEdges of them.
template <int kEdges, typename Product, typename Stage, typename T>
METAL_FUNC void sum_edges(Product product, thread Stage& stage, int begin, int end,
                          threadgroup T* xs, threadgroup T* gs) {
  if (begin < end) stage.fetch(begin, end);
  for (int p = begin; p < end; p += kEdges) {
    stage.put(xs, gs, product);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (p + kEdges < end) stage.fetch(p + kEdges, end);
    product.add(xs, gs);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the tiles are read
  }
}

// A quarter of x transposed times g, with 8 x 8 matrices.
template <int kTile, int kEdges, typename T>
struct OuterMatrices {
  static constant constexpr int kStride = padded<T>(kTile), kBlocks = kTile / 16;
  thread Sums* sums;
  int top, side;
  static int place(int e, int c) { return e * kStride + c; }
  void add(const threadgroup T* xs, const threadgroup T* gs) const thread {
#pragma clang loop unroll(full)
    for (int e = 0; e < kEdges; e += 8)
      multiply<kBlocks, kBlocks, true>(sums, xs + e * kStride + top, kStride,
                                       gs + e * kStride + side, kStride);
  }
};

// Blocks of 16 bytes that outer_tiles needs: kEdges rows of x and of g. The sums of four
// simdgroups, 256 floats of each, take their place.
template <typename T>
METAL_FUNC constexpr int outer_blocks(int tile, int edges) {
  return 2 * edges * padded<T>(tile) * int(sizeof(T)) / 16 > 256
             ? 2 * edges * padded<T>(tile) * int(sizeof(T)) / 16
             : 256;
}

// `memory` has outer_blocks(). The four simdgroups own a quarter of the tile each.
template <typename T, int kTile, int kEdges, bool kX, bool kG, typename Edges, typename X,
          typename G, typename U>
METAL_FUNC void outer_tiles(Edges edges, OuterArrays<X, G, U> arrays, OuterSizes sizes,
                            threadgroup float4* memory, ThreadPlace place) {
  constexpr int kHalf = kTile / 2, kBlocks = kHalf / 8;
  const OuterTile tile = outer_tile<kTile>(place.group, sizes);
  const int quarter = int(place.simdgroup), top = quarter / 2 * kHalf, side = quarter % 2 * kHalf;
  using Product = OuterMatrices<kTile, kEdges, T>;
  Sums sums[kBlocks * kBlocks];
  clear<kBlocks * kBlocks>(sums);
  const Product product = {sums, top, side};
  OuterStage<kTile, kEdges, kX, kG, T, Edges, OuterArrays<X, G, U>> stage = {edges, arrays, sizes,
                                                                             tile, place.id};
  threadgroup T* xs = (threadgroup T*)memory;
  sum_edges<kEdges>(product, stage, edges.table.begin(tile.part), edges.table.end(tile.part), xs,
                    xs + kEdges * Product::kStride);
  const MatrixOut<U> to = {arrays.u + edges.table.place(tile.part, tile.group, sizes), sizes};
  put_sums<kBlocks, kBlocks>(sums, (threadgroup float*)memory + 256 * quarter, to, tile.c0 + top,
                             tile.m0 + side, place.lane);
}

}  // namespace lattice
