// y[o, m] = bias[m] + sum over the edges (i, o, k) of sum_c x[i, c] W[k, c, m], for each group of
// channels.
//
//   conv_rows   one thread per output element, edges by output row; any relation and shape
//   conv_tiles  64 output rows x kColumns channels per threadgroup of 4 simdgroups,
//               over a map (output row, offset) -> input row
//   conv_tensor the same on the tensor unit (conv_tensor.metal)
//
// Sums are float32 and rounded once. An element is summed over edges by offset, then over input
// channels; the bias comes last. The array sizes holds n_out, n_k, groups, input and output
// channels of a group, then what the weight reads (weights.metal).
#include "lattice/kernels/metal/tiles.metal"
#include "lattice/kernels/metal/weights.metal"

namespace lattice {
using namespace metal;

// In place of a pointer.
struct NoBias {
  float operator[](int) const thread { return 0.0f; }
};

template <typename T, typename W, typename X, typename B, typename R, typename E, typename I,
          typename K, typename S>
METAL_FUNC void conv_rows(W w, X x, B bias, R row_offsets, E edge_ids, I in_rows, K kernel_ids,
                          S sizes, device T* y, uint3 at) {
  const int groups = sizes[2], in = sizes[3], out = sizes[4];
  const int column = int(at.x), row = int(at.y), g = column / out, m = column % out;
  float sum = 0.0f;
  for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p) {
    const int e = edge_ids[p], k = kernel_ids[e];
    const size_t from = size_t(in_rows[e]) * size_t(groups * in) + size_t(g * in);
    float part = 0.0f;
    for (int c = 0; c < in; ++c) part += float(x[from + size_t(c)]) * float(w.at(k, g, c, m));
    sum += part;
  }
  y[size_t(row) * size_t(groups * out) + size_t(column)] = T(sum + float(bias[column]));
}

// Where the rows of conv_tiles come from: positions first() .. end(), 64 per tile. Bit b of mask()
// says whether any of the 16 rows from `p` has offset k(word, b).

// One offset, every row with itself.
struct SameRows {
  int n_out;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return 1; }
  int k(int, int) const thread { return 0; }
  uint mask(int p, int, uint) const thread { return p < n_out ? 1u : 0u; }
  int in_row(int p, int) const thread { return p; }
  int out_row(int p) const thread { return p; }
};

// map (n_out, n_k), -1: none; masks (n_out, words).
template <typename M, typename K>
struct MappedRows {
  M map;
  K masks;
  int n_out, n_k;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return (n_k + 31) / 32; }
  int k(int word, int bit) const thread { return 32 * word + bit; }
  uint mask(int p, int word, uint lane) const thread {
    const int row = p + int(lane);
    return simd_or(
        lane < 16 && row < n_out ? uint(masks[size_t(row) * size_t(words()) + size_t(word)]) : 0u);
  }
  int in_row(int p, int k) const thread { return map[size_t(p) * size_t(n_k) + size_t(k)]; }
  int out_row(int p) const thread { return p; }
};

template <typename M, typename K, typename S>
METAL_FUNC MappedRows<M, K> mapped_rows(M map, K masks, S sizes) {
  return {map, masks, sizes[0], sizes[1]};
}

// Rows sorted by mask: map (n_k, n_out) of sorted rows, masks one word for each 16 of them, order
// their place in y.
template <typename M, typename K, typename O>
struct SortedRows {
  M map;
  K masks;
  O order;
  int n_out;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return 1; }
  int k(int, int bit) const thread { return bit; }
  uint mask(int p, int, uint) const thread { return masks[p / 16]; }
  int in_row(int p, int k) const thread { return map[size_t(k) * size_t(n_out) + size_t(p)]; }
  int out_row(int p) const thread { return order[p]; }
};

template <typename M, typename K, typename O, typename S>
METAL_FUNC SortedRows<M, K, O> sorted_rows(M map, K masks, O order, S sizes) {
  return {map, masks, order, sizes[0]};
}

// One edge for every output row, edges by offset: a tile is a part of the list of one offset.
template <typename E, typename I, typename O>
struct ListedRows {
  E edge_ids;
  I in_rows;
  O out_rows;
  int offset, from, to;
  int first(int) const thread { return from; }
  int end() const thread { return to; }
  int words() const thread { return 1; }
  int k(int, int) const thread { return offset; }
  uint mask(int p, int, uint) const thread { return p < to ? 1u : 0u; }
  int in_row(int p, int) const thread { return in_rows[edge_ids[p]]; }
  int out_row(int p) const thread { return out_rows[edge_ids[p]]; }
};

// parts: four numbers for each tile, offset, begin, end and one that is not read.
template <typename E, typename I, typename O, typename P>
METAL_FUNC ListedRows<E, I, O> listed_rows(E edge_ids, I in_rows, O out_rows, P parts, uint3 tile) {
  return {
      edge_ids, in_rows, out_rows, parts[4 * tile.x], parts[4 * tile.x + 1], parts[4 * tile.x + 2]};
}

// Edges of 64 positions and offset k: bounds[tile, k] .. bounds[tile + 1, k] of in_rows and
// positions, ascending; order is the place of a position in y. A row may have several edges of one
// offset, a bucket: their rows of x are added first.
template <typename B, typename I, typename P, typename O>
struct BucketRows {
  B bounds;
  I in_rows;
  P positions;
  O order;
  int n_out, n_k;
  int first(int tile) const thread { return 64 * tile; }
  int end() const thread { return n_out; }
  int words() const thread { return (n_k + 31) / 32; }
  int k(int word, int bit) const thread { return 32 * word + bit; }
  int bound(int tile, int k) const thread { return bounds[size_t(tile) * size_t(n_k) + size_t(k)]; }
  // The first edge of offset k in the tile of p whose position is at least p.
  int edge(int p, int k) const thread {
    int from = bound(p / 64, k), to = bound(p / 64 + 1, k);
    while (from < to) {
      const int middle = from + (to - from) / 2;
      if (positions[middle] < p)
        from = middle + 1;
      else
        to = middle;
    }
    return from;
  }
  bool before(int e, int p, int k, int q) const thread {
    return e < bound(p / 64 + 1, k) && positions[e] < q;
  }
  uint mask(int p, int word, uint lane) const thread {
    const int k = 32 * word + int(lane);
    const bool any = k < n_k && p < n_out && before(edge(p, k), p, k, p + 16);
    return simd_or(any ? 1u << lane : 0u);
  }
  // Of a bucket: its first edge.
  int in_row(int p, int k) const thread {
    const int e = edge(p, k);
    return before(e, p, k, p + 1) ? e : -1;
  }
  int out_row(int p) const thread { return order[p]; }
};

template <typename B, typename I, typename P, typename O, typename S>
METAL_FUNC BucketRows<B, I, P, O> bucket_rows(B bounds, I in_rows, P positions, O order, S sizes) {
  return {bounds, in_rows, positions, order, sizes[0], sizes[1]};
}

// n channels from c on, as V, of what in_row() of position p and offset k gave; then zeros. `from`
// is where that row begins in x, `stride` channels per row, `first` the first of them that counts.
template <bool kWhole, typename V, typename Rows, typename X>
METAL_FUNC Eight<V> load_row(const thread Rows&, X x, int, size_t from, int, int, size_t, int,
                             int c, int n) {
  return load_eight<kWhole, V>(x, from + size_t(c), n);
}
template <bool kWhole, typename V, typename B, typename I, typename P, typename O, typename X>
METAL_FUNC Eight<V> load_row(const thread BucketRows<B, I, P, O>& rows, X x, int e, size_t, int p,
                             int k, size_t stride, int first, int c, int n) {
  Eight<V> sum = load_eight<kWhole, V>(x, 0, 0);
  for (; n > 0 && rows.before(e, p, k, p + 1); ++e) {
    const Eight<V> next =
        load_eight<kWhole, V>(x, size_t(rows.in_rows[e]) * stride + size_t(first + c), n);
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) sum.v[j] += next.v[j];
  }
  return sum;
}

// What one of 128 threads holds of the next step of a tile. A step has kDepth channels of 64 rows
// of x, and kDepth x kColumns weights. A thread moves 8 neighboring channels of one row at a time,
// so that it looks a row of x up once per offset. Where kX is set, the input channels of a group
// are a multiple of 8. Where kW is set, the output channels are.
template <int kColumns, int kDepth, bool kX, bool kW, typename V, typename Rows, typename W,
          typename X>
struct ConvStage {
  static constant constexpr int kThreads = 128, kLines = 8 * kThreads / kColumns;
  static constant constexpr int kXEach = kDepth / 16,
                                kWEach = kDepth > kLines ? kDepth / kLines : 1;
  Rows rows;
  W w;
  X x;
  int in, out, g, stride, column, p, t;
  int k, row;
  size_t from, w_from;
  Eight<V> xv[kXEach], wv[kWEach];

  // Turns to offset k.
  void visit(int offset) thread {
    k = offset;
    row = p < rows.end() ? int(rows.in_row(p, k)) : -1;
    from = row < 0 ? 0 : size_t(row) * size_t(stride) + size_t(g * in);
    w_from = w.begin(k, g);
  }
  // Reads channels c0 .. c0 + kDepth.
  void fetch(int c0) thread {
#pragma clang loop unroll(full)
    for (int i = 0; i < kXEach; ++i) {
      const int c = c0 + 8 * (t % 2) + 16 * i;
      xv[i] = load_row<kX, V>(rows, x, row, from, p, k, size_t(stride), g * in, c,
                              row < 0 ? 0 : in - c);
    }
    const int m = column + t % (kColumns / 8) * 8;
#pragma clang loop unroll(full)
    for (int i = 0; i < kWEach; ++i) {
      const int c = c0 + t / (kColumns / 8) + kLines * i;
      wv[i] = w.template eight<kW, V>(w_from, k, g, c, m, c < in ? out - m : 0);
    }
  }
  // Writes what was read.
  void put(threadgroup V* xs, int x_stride, threadgroup V* ws, int w_stride) thread {
#pragma clang loop unroll(full)
    for (int i = 0; i < kXEach; ++i)
      store_eight(xs + t / 2 * x_stride + 8 * (t % 2) + 16 * i, xv[i]);
    const int line = t / (kColumns / 8);
#pragma clang loop unroll(full)
    for (int i = 0; i < kWEach; ++i)
      if (line + kLines * i < kDepth)
        store_eight(ws + (line + kLines * i) * w_stride + t % (kColumns / 8) * 8, wv[i]);
  }
};

// Sums over offsets and input channels: product.add(rows of x, weights, channels) where one of the
// simdgroup's 16 rows has the offset. Offsets that no row has cost nothing. While the matrix unit
// works on a step, the next one is on its way into registers.
template <typename Product, typename Stage, typename Rows, typename V>
METAL_FUNC void sum_offsets(Product product, thread Stage& stage, Rows rows, int first, int in,
                            int depth, threadgroup V* xs, threadgroup V* ws,
                            threadgroup uint* masks, uint strip, uint lane) {
  for (int word = 0; word < rows.words(); ++word) {
    const uint mine = rows.mask(first + 16 * int(strip), word, lane);
    if (lane == 0) masks[strip] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint left = masks[0] | masks[1] | masks[2] | masks[3];
    int c0 = 0;
    if (left != 0) {
      stage.visit(rows.k(word, int(ctz(left))));
      stage.fetch(0);
    }
    while (left != 0) {
      const bool counts = mine >> ctz(left) & 1u;
      const int channels = in - c0;
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the last step is done
      stage.put(xs, Product::kXs, ws, Product::kWs);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      c0 += depth;
      if (c0 >= in) {
        c0 = 0;
        left &= left - 1;
        if (left != 0) stage.visit(rows.k(word, int(ctz(left))));
      }
      if (left != 0) stage.fetch(c0);
      if (counts) product.add(xs + 16 * int(strip) * Product::kXs, ws, channels);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // masks and tiles are read
  }
}

// Takes sums of conv_tiles: rounds and stores what lies inside y.
template <typename T, typename Rows, typename B>
struct RowsOut {
  device T* y;
  B bias;
  Rows rows;
  int out, g, c_out;
  void put(int row, int column, float sum) const thread {
    if (row >= rows.end() || column >= out) return;
    const int m = g * out + column;
    y[size_t(rows.out_row(row)) * size_t(c_out) + size_t(m)] = T(sum + float(bias[m]));
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

// `memory` has conv_blocks(), masks 4 elements. Each of the four simdgroups owns 16 rows.
template <typename V, int kColumns, int kDepth, bool kX, bool kW, typename Rows, typename W,
          typename X, typename B, typename S, typename T>
METAL_FUNC void conv_tiles(Rows rows, W w, X x, B bias, S sizes, device T* y,
                           threadgroup float4* memory, threadgroup uint* masks, uint3 group,
                           uint thread_id, uint strip, uint lane) {
  const int groups = sizes[2], in = sizes[3], out = sizes[4];
  const int first = rows.first(int(group.x)), column = int(group.y) * kColumns, g = int(group.z),
            t = int(thread_id);
  using Product = ConvMatrices<kColumns, kDepth, V>;
  Sums sums[2 * kColumns / 8];
  clear<2 * kColumns / 8>(sums);
  const Product product = {sums};
  ConvStage<kColumns, kDepth, kX, kW, V, Rows, W, X> stage = {
      rows, w, x, in, out, g, groups * in, column, first + t / 2, t};
  threadgroup V* xs = (threadgroup V*)memory;
  sum_offsets(product, stage, rows, first, in, kDepth, xs, xs + 64 * Product::kXs, masks, strip,
              lane);
  const RowsOut<T, Rows, B> to = {y, bias, rows, out, g, groups * out};
  put_sums<2, kColumns / 8>(sums, (threadgroup float*)memory + 256 * strip, to,
                            first + 16 * int(strip), column, lane);
}

}  // namespace lattice
