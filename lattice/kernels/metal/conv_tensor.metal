// conv_tiles (conv.metal) on the tensor unit of Metal 4: the same rows, weights and steps. Each
// simdgroup multiplies 16 rows by kColumns channels, kDepth input channels at a time. The dtype T
// is half or bfloat.
#include "lattice/kernels/metal/conv.metal"
#include "lattice/kernels/metal/tensor.metal"

#ifdef LATTICE_TENSOR
namespace lattice {

template <int kColumns, int kDepth, typename V, typename C>
struct ConvTensors {
  static constant constexpr int kXs = kDepth, kWs = kColumns;
  thread C* sums;
  void add(threadgroup V* xs, threadgroup V* ws, int) const thread {
    add_tiles<V, 16, kColumns, kDepth, false>(*sums, xs, ws);
  }
};

// Blocks of 16 bytes that conv_tensor needs.
METAL_FUNC constexpr int conv_tensor_blocks(int columns, int depth) {
  return (64 * depth + depth * columns) / 8;
}

template <typename T, int kColumns, int kDepth, bool kX, bool kW, typename Rows, typename W,
          typename X, typename B, typename N>
METAL_FUNC void conv_tensor(Rows rows, W w, ConvArrays<X, B, T, N> arrays, ConvSizes sizes,
                            TileMemory memory, ThreadPlace place) {
  const int first = rows.first(int(place.group.x)), column = int(place.group.y) * kColumns,
            g = int(place.group.z);
  auto sums = tensor_sums<T, 16, kColumns, kDepth, false>();
  clear_tensor(sums);
  const ConvTensors<kColumns, kDepth, T, decltype(sums)> product = {&sums};
  ConvStage<kColumns, kDepth, kX, kW, T, Rows, W, X> stage = {
      rows, w, arrays.x, sizes, g, column, place.id, row_at(first, g, sizes, place.id)};
  sum_offsets<T, kDepth>(product, stage, first, memory, place);
  const RowsOut<Rows, ConvArrays<X, B, T, N>> to = {rows, arrays, sizes, g};
  put_tensor(sums, to, first + 16 * int(place.simdgroup), column);
}

}  // namespace lattice
#endif
