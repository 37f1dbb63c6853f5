// y[o, m] = bias[m] + sum over the edges (i, o, k) of sum_c x[i, c] W[k, c, m], for each group of
// channels.
//
//   conv_rows   one thread per output element, edges by output row; any relation and shape
//   conv_tiles  64 output rows x kColumns channels per threadgroup of 4 simdgroups,
//               over a map (output row, offset) -> input row
//   conv_tensor the same on the tensor unit (conv_tensor.metal)
//
// Sums are float32 and rounded once. An element is summed over edges by offset, then over input
// channels; the bias comes last.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/metal/conv_views.metal"
#include "lattice/kernels/metal/tiles.metal"
#include "lattice/kernels/metal/weights.metal"

namespace lattice {
using namespace metal;

// Takes the place of the pointer of a missing bias.
struct NoBias {
  float operator[](int) const thread { return 0.0f; }
};

// What happens to a sum before it is stored: nothing, or the norm behind the layer with the
// residual and the ReLU, relu((sum - mean) weight / sqrt(var + eps) + shift + residual).
struct NoNorm {
  float of(float sum, int, size_t) const thread { return sum; }
};
template <bool kAdd, bool kRelu, typename M, typename V, typename W, typename S, typename R>
struct NormAfter {
  M mean;
  V var;
  W weight;
  S shift;
  R residual;
  float eps;
  float of(float sum, int m, size_t at) const thread {
    const float scale = rsqrt(float(var[m]) + eps) * float(weight[m]);
    float value = (sum - float(mean[m])) * scale + float(shift[m]);
    if (kAdd) value += float(residual[at]);
    return kRelu ? max(value, 0.0f) : value;
  }
};
template <bool kAdd, bool kRelu, typename M, typename V, typename W, typename S, typename R>
METAL_FUNC NormAfter<kAdd, kRelu, M, V, W, S, R> norm_after(M mean, V var, W weight, S shift,
                                                            R residual, ConvSizes sizes) {
  return {mean, var, weight, shift, residual, sizes.eps};
}

// The arrays that a convolution reads and writes besides weights and indices.
template <typename X, typename B, typename T, typename N>
struct ConvArrays {
  X x;
  B bias;
  device T* y;
  N norm;
  // Stores the sum of output channel m at its place.
  void put(size_t at, int m, float sum) const thread {
    y[at] = T(norm.of(sum + float(bias[m]), m, at));
  }
};

template <typename X, typename B, typename T, typename N>
METAL_FUNC ConvArrays<X, B, T, N> conv_arrays(X x, B bias, device T* y, N norm) {
  return {x, bias, y, norm};
}

// Edges by output row.
template <typename R, typename E, typename I, typename K>
struct OutputEdges {
  R row_offsets;
  E edge_ids;
  I in_rows;
  K kernel_ids;
};

template <typename R, typename E, typename I, typename K>
METAL_FUNC OutputEdges<R, E, I, K> output_edges(R row_offsets, E edge_ids, I in_rows,
                                                K kernel_ids) {
  return {row_offsets, edge_ids, in_rows, kernel_ids};
}

template <typename W, typename Edges, typename Arrays>
METAL_FUNC void conv_rows(W w, Edges edges, Arrays arrays, ConvSizes sizes, uint3 at) {
  const int groups = sizes.groups, in = sizes.in, out = sizes.out;
  const int column = int(at.x), row = int(at.y), g = column / out, m = column % out;
  float sum = 0.0f;
  for (int p = edges.row_offsets[row]; p < edges.row_offsets[row + 1]; ++p) {
    const int e = edges.edge_ids[p], k = edges.kernel_ids[e];
    const size_t from = size_t(edges.in_rows[e]) * size_t(groups * in) + size_t(g * in);
    float part = 0.0f;
    for (int c = 0; c < in; ++c)
      part += float(arrays.x[from + size_t(c)]) * float(w.at(k, g, c, m));
    sum += part;
  }
  arrays.put(size_t(row) * size_t(groups * out) + size_t(column), column, sum);
}

// The row of x that a thread reads: what in_row() gave for position p and offset k. A row of x has
// `stride` channels, of which `first` is the first that counts; it lies at `from`.
struct RowAt {
  int p, k, row, stride, first;
  size_t from;
};

// The row of one of 128 threads, before it turns to an offset: two threads share a row.
METAL_FUNC RowAt row_at(int first, int g, ConvSizes sizes, uint id) {
  return {first + int(id / 2u), 0, -1, sizes.groups * sizes.in, g * sizes.in, 0};
}

// n channels from c on, as V, then zeros.
template <bool kWhole, typename V, typename Rows, typename X>
METAL_FUNC Eight<V> load_row(const thread Rows&, X x, RowAt at, int c, int n) {
  return load_eight<kWhole, V>(x, at.from + size_t(c), n);
}
template <bool kWhole, typename V, typename B, typename I, typename P, typename O, typename X>
METAL_FUNC Eight<V> load_row(const thread BucketRows<B, I, P, O>& rows, X x, RowAt at, int c,
                             int n) {
  Eight<V> sum = load_eight<kWhole, V>(x, 0, 0);
  for (int e = at.row; n > 0 && rows.before(e, at.p, at.k, at.p + 1); ++e) {
    const Eight<V> next = load_eight<kWhole, V>(
        x, size_t(rows.in_rows[e]) * size_t(at.stride) + size_t(at.first + c), n);
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) sum.v[j] += next.v[j];
  }
  return sum;
}

// The values of the next step of a tile that one of 128 threads holds. A step has kDepth channels
// of 64 rows of x, and kDepth x kColumns weights. A thread moves 8 neighboring channels of one row
// at a time, so that it looks a row of x up once per offset. Where kX is set, the input channels of
// a group are a multiple of 8. Where kW is set, the output channels are.
template <int kColumns, int kDepth, bool kX, bool kW, typename V, typename Rows, typename W,
          typename X>
struct ConvStage {
  static constant constexpr int kThreads = 128, kLines = 8 * kThreads / kColumns;
  static constant constexpr int kXEach = kDepth / 16, kWEach = (kDepth + kLines - 1) / kLines;
  // Whether some thread has no row of weights in some round.
  static constant constexpr bool kRagged = kDepth % kLines != 0;
  Rows rows;
  W w;
  X x;
  ConvSizes sizes;
  int g, column;
  uint t;
  RowAt at;
  size_t w_from;
  Eight<V> xv[kXEach], wv[kWEach];

  // Where this thread reads and writes: its first channel of x, its first row and column of the
  // weights.
  METAL_FUNC int c_own() const thread { return int(t % 2u * 8u); }
  METAL_FUNC int line() const thread { return int(t / uint(kColumns / 8)); }
  METAL_FUNC int m_own() const thread { return int(t % uint(kColumns / 8) * 8u); }
  METAL_FUNC bool has_row(int i) const thread {
    return !kRagged || (line() < kLines && line() + kLines * i < kDepth);
  }
  // Turns to offset k.
  METAL_FUNC void visit(int offset) thread {
    at.k = offset;
    at.row = at.p < rows.end() ? int(rows.in_row(at.p, offset)) : -1;
    at.from = at.row < 0 ? 0 : size_t(at.row) * size_t(at.stride) + size_t(at.first);
    w_from = w.begin(offset, g);
  }
  // Reads channels c0 .. c0 + kDepth.
  METAL_FUNC void fetch(int c0) thread {
#pragma clang loop unroll(full)
    for (int i = 0; i < kXEach; ++i) {
      const int c = c0 + c_own() + 16 * i;
      xv[i] = load_row<kX, V>(rows, x, at, c, at.row < 0 ? 0 : sizes.in - c);
    }
    const int m = column + m_own();
#pragma clang loop unroll(full)
    for (int i = 0; i < kWEach; ++i) {
      const int c = c0 + line() + kLines * i;
      wv[i] = w.template eight<kW, V>(w_from, at.k, g, c, m,
                                      has_row(i) && c < sizes.in ? sizes.out - m : 0);
    }
  }
  // Writes what was read.
  METAL_FUNC void put(threadgroup V* xs, int x_stride, threadgroup V* ws, int w_stride) thread {
    threadgroup V* to = xs + int(t / 2u) * x_stride + c_own();
#pragma clang loop unroll(full)
    for (int i = 0; i < kXEach; ++i) store_eight(to + 16 * i, xv[i]);
    to = ws + line() * w_stride + m_own();
#pragma clang loop unroll(full)
    for (int i = 0; i < kWEach; ++i)
      if (has_row(i)) store_eight(to + kLines * i * w_stride, wv[i]);
  }
};

// Memory of a group: the tiles of a step, then of the sums, and the offsets of each simdgroup.
struct TileMemory {
  threadgroup float4* tiles;
  threadgroup uint* masks;
};

// Sums over offsets and input channels: product.add(rows of x, weights, channels) where one of the
// simdgroup's 16 rows has the offset. Offsets that no row has cost nothing. While the matrix unit
// works on a step, the next one is on its way into registers.
template <typename V, int kDepth, typename Product, typename Stage>
METAL_FUNC void sum_offsets(Product product, thread Stage& stage, int first, TileMemory memory,
                            ThreadPlace place) {
  const int in = stage.sizes.in, strip = int(place.simdgroup);
  threadgroup uint* masks = memory.masks;
  threadgroup V* xs = (threadgroup V*)memory.tiles;
  threadgroup V* ws = xs + 64 * Product::kXs;
  for (int word = 0; word < stage.rows.words(); ++word) {
    const uint mine = stage.rows.mask(first + 16 * strip, word, place.lane);
    if (place.lane == 0) masks[strip] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint left = masks[0] | masks[1] | masks[2] | masks[3];
    int c0 = 0;
    if (left != 0) {
      stage.visit(stage.rows.k(word, int(ctz(left))));
      stage.fetch(0);
    }
    while (left != 0) {
      const bool counts = mine >> ctz(left) & 1u;
      const int channels = in - c0;
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the last step is done
      stage.put(xs, Product::kXs, ws, Product::kWs);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      c0 += kDepth;
      if (c0 >= in) {
        c0 = 0;
        left &= left - 1;
        if (left != 0) stage.visit(stage.rows.k(word, int(ctz(left))));
      }
      if (left != 0) stage.fetch(c0);
      if (counts) product.add(xs + 16 * strip * Product::kXs, ws, channels);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // masks and tiles are read
  }
}

// Takes sums of conv_tiles: rounds and stores what lies inside y.
template <typename Rows, typename Arrays>
struct RowsOut {
  Rows rows;
  Arrays arrays;
  ConvSizes sizes;
  int g;
  void put(int row, int column, float sum) const thread {
    if (row >= rows.end() || column >= sizes.out) return;
    const int m = g * sizes.out + column;
    arrays.put(size_t(rows.out_row(row)) * size_t(sizes.groups * sizes.out) + size_t(m), m, sum);
  }
};

// 16 rows of x times the weights of a step, with 8 x 8 matrices.
template <int kColumns, int kDepth, typename V>
struct ConvMatrices {
  static constant constexpr int kXs = padded<V>(kDepth), kWs = padded<V>(kColumns);
  thread Sums* sums;
  void add(const threadgroup V* xs, const threadgroup V* ws, int channels) const thread {
    for (int c = 0; c < min(kDepth, channels); c += 8)
      multiply<2, kColumns / 8, false>(sums, xs + c, kXs, ws + c * kWs, kWs);
  }
};

// Blocks of 16 bytes that conv_tiles needs: 64 rows of x and kDepth rows of weights, whose place
// the sums take when they leave. V: T, or float32 where rows are added before the product.
template <typename V>
METAL_FUNC constexpr int conv_blocks(int columns, int depth) {
  return (64 * padded<V>(depth) + depth * padded<V>(columns)) * int(sizeof(V)) / 16;
}

// The tiles have conv_blocks(). Each of the four simdgroups owns 16 rows.
template <typename V, int kColumns, int kDepth, bool kX, bool kW, typename Rows, typename W,
          typename X, typename B, typename T, typename N>
METAL_FUNC void conv_tiles(Rows rows, W w, ConvArrays<X, B, T, N> arrays, ConvSizes sizes,
                           TileMemory memory, ThreadPlace place) {
  const int first = rows.first(int(place.group.x)), column = int(place.group.y) * kColumns,
            g = int(place.group.z), strip = int(place.simdgroup);
  using Product = ConvMatrices<kColumns, kDepth, V>;
  Sums sums[2 * kColumns / 8];
  clear<2 * kColumns / 8>(sums);
  const Product product = {sums};
  ConvStage<kColumns, kDepth, kX, kW, V, Rows, W, X> stage = {
      rows, w, arrays.x, sizes, g, column, place.id, row_at(first, g, sizes, place.id)};
  sum_offsets<V, kDepth>(product, stage, first, memory, place);
  const RowsOut<Rows, ConvArrays<X, B, T, N>> to = {rows, arrays, sizes, g};
  put_sums<2, kColumns / 8>(sums, (threadgroup float*)memory.tiles + 256 * strip, to,
                            first + 16 * strip, column, place.lane);
}

}  // namespace lattice
