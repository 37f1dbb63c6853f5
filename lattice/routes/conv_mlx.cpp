// conv and outer from plain MLX operations: gather, matmul and scatter-add per offset.
#include <mlx/ops.h>

#include "lattice/routes/conv.h"
#include "lattice/routes/packed_weight.h"
#include "lattice/routes/products.h"

namespace lattice {
namespace {

// Rows of both ends of the edges of each offset.
struct OffsetRows {
  mx::array in, out;
  std::vector<int32_t> begin;  // n_k + 1

  explicit OffsetRows(const Call& call)
      : in(mx::take(call.relation->edges().in_rows, call.relation->kernel_csr().edge_ids,
                    call.stream)),
        out(mx::take(call.relation->edges().out_rows, call.relation->kernel_csr().edge_ids,
                     call.stream)) {
    const int32_t* offsets = call.relation->kernel_csr().row_offsets.data<int32_t>();
    begin.assign(offsets, offsets + call.relation->n_kernels() + 1);
  }
  int64_t size(size_t k) const { return begin[k + 1] - begin[k]; }
};

// Rows [from, to) of a 1-D array.
mx::array part(const mx::array& a, int from, int to, mx::StreamOrDevice s) {
  return mx::slice(a, {from}, {to}, s);
}

// (E, groups * c) -> (groups, E, c).
mx::array by_group(const mx::array& rows, int groups, mx::StreamOrDevice s) {
  return mx::transpose(mx::reshape(rows, {rows.shape(0), groups, rows.shape(1) / groups}, s),
                       {1, 0, 2}, s);
}

}  // namespace

mx::array conv_with_mlx(const Call& call) {
  const auto s = call.stream;
  const int groups = static_cast<int>(call.groups), c_out = static_cast<int>(call.c_out);
  const OffsetRows rows(call);
  const mx::array x = mx::astype(call.inputs[0], mx::float32, s);
  mx::array y = mx::zeros({static_cast<int>(call.n_out()), c_out}, mx::float32, s);
  for (size_t k = 0; k + 1 < rows.begin.size(); ++k) {
    if (rows.size(k) == 0) continue;
    const mx::array gathered =
        mx::take(x, part(rows.in, rows.begin[k], rows.begin[k + 1], s), 0, s);
    const mx::array wk = mx::astype(weight_of_offset(call, static_cast<int>(k)), mx::float32, s);
    mx::array p = gathered;
    if (groups == 1) {
      p = product(gathered, wk, s);
    } else {
      p = product(by_group(gathered, groups, s), by_group(wk, groups, s),
                  s);  // (G, E, c_out / G)
      p = mx::reshape(mx::transpose(p, {1, 0, 2}, s), {gathered.shape(0), c_out}, s);
    }
    y = mx::scatter_add(y, {part(rows.out, rows.begin[k], rows.begin[k + 1], s)},
                        mx::expand_dims(p, 1, s), {0}, s);
  }
  if (call.bias()) y = mx::add(y, mx::astype(*call.bias(), mx::float32, s), s);
  return mx::astype(y, call.dtype, s);
}

mx::array outer_with_mlx(const Call& call) {
  const auto s = call.stream;
  const int groups = static_cast<int>(call.groups);
  const int in_group = static_cast<int>(call.c_in / call.groups),
            c_out = static_cast<int>(call.c_out);
  const OffsetRows rows(call);
  const mx::array x = mx::astype(call.inputs[0], mx::float32, s);
  const mx::array g = mx::astype(call.inputs[1], mx::float32, s);
  std::vector<mx::array> parts;
  for (size_t k = 0; k + 1 < rows.begin.size(); ++k) {
    if (rows.size(k) == 0) {
      parts.push_back(mx::zeros({in_group, c_out}, mx::float32, s));
      continue;
    }
    const mx::array xk = mx::take(x, part(rows.in, rows.begin[k], rows.begin[k + 1], s), 0, s);
    const mx::array gk = mx::take(g, part(rows.out, rows.begin[k], rows.begin[k + 1], s), 0, s);
    const mx::array u = product(mx::swapaxes(by_group(xk, groups, s), 1, 2, s),
                                by_group(gk, groups, s), s);  // (G, c, m)
    parts.push_back(mx::reshape(mx::transpose(u, {1, 0, 2}, s), {in_group, c_out}, s));
  }
  return mx::astype(mx::stack(parts, 0, s), call.dtype, s);
}

mx::array linear_with_mlx(const Call& call) {
  const auto s = call.stream;
  // Packed weights: in float32, with the weight rounded to the dtype as everywhere.
  // quantized_matmul of a 16-bit dtype rounds inside the sum on some devices.
  std::vector<mx::array> in = with_dense_weight(call).inputs;
  if (call.packing().bits)
    for (mx::array& a : in) a = mx::astype(a, mx::float32, s);
  const mx::array w = mx::squeeze(in[1], 0, s);
  const mx::array y = call.bias() ? product_plus(in[2], in[0], w, s) : product(in[0], w, s);
  return mx::astype(y, call.dtype, s);
}

}  // namespace lattice
