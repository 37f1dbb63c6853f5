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

// Threadgroup memory: xs and gs 16 x padded(kTile), strips 4 x 8 x 32, ids 32. The four simdgroups
// own a quarter of the tile each.
template <typename T, typename U, int kTile, typename X, typename G, typename E, typename I,
          typename O, typename P, typename S>
METAL_FUNC void outer_tiles(X x, G g, E edge_ids, I in_rows, O out_rows, P parts, S sizes,
                            device U* u, threadgroup T* xs, threadgroup T* gs,
                            threadgroup float* strips, threadgroup int* ids, uint3 group,
                            uint thread_id, uint quarter, uint lane) {
  constexpr int kEdges = 16, kThreads = 128, kStride = padded<T>(kTile), kHalf = kTile / 2,
                kBlocks = kHalf / 8;
  const int groups = sizes[0], in = sizes[1], out = sizes[2], t = int(thread_id);
  const int columns = (out + kTile - 1) / kTile,
            a = int(group.z) / columns;  // a: the group of channels
  const int c0 = int(group.y) * kTile, m0 = int(group.z) % columns * kTile, part = 4 * int(group.x);
  const int top = int(quarter / 2) * kHalf, side = int(quarter % 2) * kHalf, end = parts[part + 2];
  Sums sums[kBlocks * kBlocks];
  clear<kBlocks * kBlocks>(sums);
  for (int p = parts[part + 1]; p < end; p += kEdges) {
    if (t < kEdges) {
      const int e = p + t < end ? int(edge_ids[p + t]) : -1;
      ids[t] = e < 0 ? -1 : int(in_rows[e]);
      ids[kEdges + t] = e < 0 ? -1 : int(out_rows[e]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = t; i < kEdges * kTile; i += kThreads) {
      const int e = i / kTile, c = c0 + i % kTile, m = m0 + i % kTile, at = e * kStride + i % kTile;
      const int from = ids[e], to = ids[kEdges + e];
      xs[at] = from >= 0 && c < in ? T(x[size_t(from) * size_t(groups * in) + size_t(a * in + c)])
                                   : T(0);
      gs[at] =
          to >= 0 && m < out ? T(g[size_t(to) * size_t(groups * out) + size_t(a * out + m)]) : T(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int e = 0; e < kEdges; e += 8)
      multiply<kBlocks, kBlocks, true>(sums, xs + e * kStride + top, kStride,
                                       gs + e * kStride + side, kStride);
  }
  const MatrixOut<U> to = {u + (parts[part + 3] * long(sizes[3]) + a * sizes[4]), in, out,
                           sizes[5]};
  put_sums<kBlocks, kBlocks>(sums, strips + 256 * quarter, to, c0 + top, m0 + side, lane);
}

}  // namespace lattice
