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
          typename X, typename B, typename S>
METAL_FUNC void conv_tensor(Rows rows, W w, X x, B bias, S sizes, device T* y,
                            threadgroup float4* memory, threadgroup uint* masks, uint3 group,
                            uint thread_id, uint strip, uint lane) {
  const int groups = sizes[2], in = sizes[3], out = sizes[4];
  const int first = rows.first(int(group.x)), column = int(group.y) * kColumns, g = int(group.z),
            t = int(thread_id);
  auto sums = tensor_sums<T, 16, kColumns, kDepth, false>();
  const ConvTensors<kColumns, kDepth, T, decltype(sums)> product = {&sums};
  ConvStage<kColumns, kDepth, kX, kW, T, Rows, W, X> stage = {
      rows, w, x, in, out, g, groups * in, column, first + t / 2, t};
  threadgroup T* xs = (threadgroup T*)memory;
  sum_offsets(product, stage, rows, first, in, kDepth, xs, xs + 64 * kDepth, masks, strip, lane);
  const RowsOut<T, Rows, B> to = {y, bias, rows, out, g, groups * out};
  put_tensor(sums, to, first + 16 * int(strip), column);
}

}  // namespace lattice
#endif
