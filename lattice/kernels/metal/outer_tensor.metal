// outer_tiles (outer.metal) on the tensor unit of Metal 4: the same parts and edges. Each simdgroup
// multiplies a quarter of the tile, kEdges edges at a time. The dtype T is half or bfloat.
#include "lattice/kernels/metal/outer.metal"
#include "lattice/kernels/metal/tensor.metal"

#ifdef LATTICE_TENSOR
namespace lattice {

// The two halves of the channels lie one behind the other, so that each is a tile without padding.
template <int kTile, int kEdges, typename T, typename C>
struct OuterTensors {
  static constant constexpr int kHalf = kTile / 2;
  thread C* sums;
  int top, side;  // first element of the half
  static int place(int e, int c) { return c / kHalf * (kEdges * kHalf) + e * kHalf + c % kHalf; }
  void add(threadgroup T* xs, threadgroup T* gs) const thread {
    add_tiles<T, kHalf, kHalf, kEdges, true>(*sums, xs + top, gs + side);
  }
};

// Blocks of 16 bytes that outer_tensor needs.
METAL_FUNC constexpr int outer_tensor_blocks(int tile, int edges) { return 2 * edges * tile / 8; }

template <typename T, typename U, int kTile, int kEdges, bool kX, bool kG, typename X, typename G,
          typename E, typename I, typename O, typename P, typename S>
METAL_FUNC void outer_tensor(X x, G g, E edge_ids, I in_rows, O out_rows, P parts, S sizes,
                             device U* u, threadgroup float4* memory, uint3 group, uint thread_id,
                             uint quarter, uint) {
  constexpr int kHalf = kTile / 2;
  const int groups = sizes[0], in = sizes[1], out = sizes[2];
  const int columns = (out + kTile - 1) / kTile,
            a = int(group.z) / columns;  // a: the group of channels
  const int c0 = int(group.y) * kTile, m0 = int(group.z) % columns * kTile, part = 4 * int(group.x);
  const int upper = int(quarter / 2), right = int(quarter % 2);
  auto sums = tensor_sums<T, kHalf, kHalf, kEdges, true>();
  const OuterTensors<kTile, kEdges, T, decltype(sums)> product = {&sums, upper * kEdges * kHalf,
                                                                  right * kEdges * kHalf};
  OuterStage<kTile, kEdges, kX, kG, T, X, G, E, I, O> stage = {
      x, g, edge_ids, in_rows, out_rows, groups, in, out, a, c0, m0, int(thread_id)};
  threadgroup T* xs = (threadgroup T*)memory;
  sum_edges<kEdges>(product, stage, parts[part + 1], parts[part + 2], xs, xs + kEdges * kTile);
  const MatrixOut<U> to = {u + (parts[part + 3] * long(sizes[3]) + a * sizes[4]), in, out,
                           sizes[5]};
  put_tensor(sums, to, c0 + upper * kHalf, m0 + right * kHalf);
}

}  // namespace lattice
#endif
