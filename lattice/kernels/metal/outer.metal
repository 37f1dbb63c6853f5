// u[k, c, m] = sum over the edges (i, o, k) of x[i, c] g[o, m], for each group of channels: the
// gradient of a weight.
//
//   outer_rows   one thread per element of u; any shape
//   outer_tiles  kTile x kTile elements of u per threadgroup of 4 simdgroups
//
// The edges of an offset are split into parts of a fixed length. `parts` has four numbers per part:
// k, begin, end, place in u. Each part is summed in float32 in the order of its edges. Then the
// parts are added in order (segments.metal). So the bits are the same every time, without atomics.
// sizes: groups, input and output channels of a group, then the strides of u: a place, a group, an
// input channel.
#include "lattice/kernels/metal/tiles.metal"

namespace lattice {
using namespace metal;

template <typename T, typename X, typename G, typename E, typename I, typename O, typename P,
          typename S>
METAL_FUNC void outer_rows(X x, G g, E edge_ids, I in_rows, O out_rows, P parts, S sizes,
                           device T* u, uint3 at) {
  const int groups = sizes[0], in = sizes[1], out = sizes[2];
  const int column = int(at.x), c = int(at.y), part = 4 * int(at.z), group = column / out;
  float sum = 0.0f;
  for (int p = parts[part + 1]; p < parts[part + 2]; ++p) {
    const int e = edge_ids[p];
    sum += float(x[size_t(in_rows[e]) * size_t(groups * in) + size_t(group * in + c)]) *
           float(g[size_t(out_rows[e]) * size_t(groups * out) + size_t(column)]);
  }
  u[parts[part + 3] * long(sizes[3]) + group * sizes[4] + c * sizes[5] + column % out] = T(sum);
}

// Takes sums of outer_tiles: rounds and stores what lies inside u.
template <typename T>
struct MatrixOut {
  device T* u;
  int in, out, stride_c;
  void put(int c, int m, float sum) const thread {
    if (c < in && m < out) u[c * stride_c + m] = T(sum);
  }
};

// What one of 128 threads holds of the next kEdges edges: kTile channels of x and of g. A thread
// moves 8 neighboring channels of one edge at a time. Where kX is set, the input channels of a
// group are a multiple of 8. Where kG is set, the output channels are.
template <int kTile, int kEdges, bool kX, bool kG, typename T, typename X, typename G, typename E,
          typename I, typename O>
struct OuterStage {
  static constant constexpr int kThreads = 128, kLines = 8 * kThreads / kTile;
  static constant constexpr int kEach = kEdges > kLines ? kEdges / kLines : 1;
  X x;
  G g;
  E edge_ids;
  I in_rows;
  O out_rows;
  int groups, in, out, a, c0, m0, t;
  Eight<T> xv[kEach], gv[kEach];

  // Reads edges p .. p + kEdges, those before `end`.
  void fetch(int p, int end) thread {
    const int c = c0 + t % (kTile / 8) * 8, m = m0 + t % (kTile / 8) * 8;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const int at = p + t / (kTile / 8) + kLines * i;
      const int e = at < end ? int(edge_ids[at]) : -1;
      const int from = e < 0 ? 0 : int(in_rows[e]), to = e < 0 ? 0 : int(out_rows[e]);
      xv[i] = load_eight<kX, T>(x, size_t(from) * size_t(groups * in) + size_t(a * in + c),
                                e < 0 ? 0 : in - c);
      gv[i] = load_eight<kG, T>(g, size_t(to) * size_t(groups * out) + size_t(a * out + m),
                                e < 0 ? 0 : out - m);
    }
  }
  template <typename Product>
  void put(threadgroup T* xs, threadgroup T* gs, Product) thread {
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const int e = t / (kTile / 8) + kLines * i;
      if (e >= kEdges) continue;
      const int to = Product::place(e, t % (kTile / 8) * 8);
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
template <typename T, typename U, int kTile, int kEdges, bool kX, bool kG, typename X, typename G,
          typename E, typename I, typename O, typename P, typename S>
METAL_FUNC void outer_tiles(X x, G g, E edge_ids, I in_rows, O out_rows, P parts, S sizes,
                            device U* u, threadgroup float4* memory, uint3 group, uint thread_id,
                            uint quarter, uint lane) {
  constexpr int kHalf = kTile / 2, kBlocks = kHalf / 8;
  const int groups = sizes[0], in = sizes[1], out = sizes[2];
  const int columns = (out + kTile - 1) / kTile,
            a = int(group.z) / columns;  // a: the group of channels
  const int c0 = int(group.y) * kTile, m0 = int(group.z) % columns * kTile, part = 4 * int(group.x);
  const int top = int(quarter / 2) * kHalf, side = int(quarter % 2) * kHalf;
  using Product = OuterMatrices<kTile, kEdges, T>;
  Sums sums[kBlocks * kBlocks];
  clear<kBlocks * kBlocks>(sums);
  const Product product = {sums, top, side};
  OuterStage<kTile, kEdges, kX, kG, T, X, G, E, I, O> stage = {
      x, g, edge_ids, in_rows, out_rows, groups, in, out, a, c0, m0, int(thread_id)};
  threadgroup T* xs = (threadgroup T*)memory;
  sum_edges<kEdges>(product, stage, parts[part + 1], parts[part + 2], xs,
                    xs + kEdges * Product::kStride);
  const MatrixOut<U> to = {u + (parts[part + 3] * long(sizes[3]) + a * sizes[4]), in, out,
                           sizes[5]};
  put_sums<kBlocks, kBlocks>(sums, (threadgroup float*)memory + 256 * quarter, to, c0 + top,
                             m0 + side, lane);
}

}  // namespace lattice
