// outer_tiles (outer.metal) on the tensor unit of Metal 4: the same parts and edges. Each simdgroup
// multiplies a quarter of the tile, kEdges edges at a time. The dtype T is half or bfloat.
#include "lattice/kernels/metal/outer.metal"
#include "lattice/kernels/metal/tensor.metal"

#ifdef LATTICE_TENSOR
namespace lattice {

// The two halves of the channels lie one after the other, so each is a tile without padding.
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

template <typename T, int kTile, int kEdges, bool kX, bool kG, typename Edges, typename X,
          typename G, typename U>
METAL_FUNC void outer_tensor(Edges edges, OuterArrays<X, G, U> arrays, OuterSizes sizes,
                             threadgroup float4* memory, ThreadPlace place) {
  constexpr int kHalf = kTile / 2;
  const OuterTile tile = outer_tile<kTile>(place.group, sizes);
  const int upper = int(place.simdgroup / 2), right = int(place.simdgroup % 2);
  auto sums = tensor_sums<T, kHalf, kHalf, kEdges, true>();
  clear_tensor(sums);
  const OuterTensors<kTile, kEdges, T, decltype(sums)> product = {&sums, upper * kEdges * kHalf,
                                                                  right * kEdges * kHalf};
  OuterStage<kTile, kEdges, kX, kG, T, Edges, OuterArrays<X, G, U>> stage = {edges, arrays, sizes,
                                                                             tile, place.id};
  threadgroup T* xs = (threadgroup T*)memory;
  sum_edges<kEdges>(product, stage, edges.table.begin(tile.part), edges.table.end(tile.part), xs,
                    xs + kEdges * kTile);
  const MatrixOut<U> to = {arrays.u + edges.table.place(tile.part, tile.group, sizes), sizes};
  put_tensor(sums, to, tile.c0 + upper * kHalf, tile.m0 + right * kHalf);
}

}  // namespace lattice
#endif
