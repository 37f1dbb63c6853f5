// conv and outer from plain MLX operations: gather, matmul and scatter-add per offset.
#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/packed_weight.h"
#include "lattice/routes/products.h"

namespace lattice::routes {
namespace {

// Rows of both ends of the edges of each offset.
struct OffsetRows {
  mx::array in, out;
  std::vector<int32_t> begin;  // n_k + 1

  OffsetRows(const Relation& r, mx::StreamOrDevice s)
      : in(mx::take(r.edges().in_rows, r.kernel_csr().edge_ids, s)),
        out(mx::take(r.edges().out_rows, r.kernel_csr().edge_ids, s)) {
    const int32_t* offsets = r.kernel_csr().row_offsets.data<int32_t>();
    begin.assign(offsets, offsets + r.n_kernels() + 1);
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

mx::array ConvAsked::Norm::scale(mx::StreamOrDevice s) const {
  const mx::array root = mx::rsqrt(mx::add(as_float32(var, s), mx::array(eps), s), s);
  return mx::multiply(root, as_float32(weight, s), s);
}

mx::array with_norm(const ConvAsked& asked, const mx::array& made) {
  const auto s = asked.stream;
  if (!asked.norm) return mx::astype(made, asked.dtype(), s);
  const ConvAsked::Norm& norm = *asked.norm;
  mx::array y = mx::subtract(as_float32(made, s), as_float32(norm.mean, s), s);
  y = mx::add(mx::multiply(y, norm.scale(s), s), as_float32(norm.shift, s), s);
  if (norm.residual) y = mx::add(y, as_float32(*norm.residual, s), s);
  if (norm.relu) y = mx::maximum(y, mx::array(0.0f), s);
  return mx::astype(y, asked.dtype(), s);
}

mx::array conv_with_mlx(const ConvAsked& asked) {
  const auto s = asked.stream;
  const int groups = static_cast<int>(asked.groups), c_out = static_cast<int>(asked.c_out);
  const OffsetRows rows(*asked.relation, s);
  const mx::array x = mx::astype(asked.x, mx::float32, s);
  mx::array y = mx::zeros({static_cast<int>(asked.n_out()), c_out}, mx::float32, s);
  for (size_t k = 0; k + 1 < rows.begin.size(); ++k) {
    if (rows.size(k) == 0) continue;
    const mx::array gathered =
        mx::take(x, part(rows.in, rows.begin[k], rows.begin[k + 1], s), 0, s);
    const mx::array wk = mx::astype(weight_of_offset(asked, static_cast<int>(k)), mx::float32, s);
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
  if (asked.bias) y = mx::add(y, mx::astype(*asked.bias, mx::float32, s), s);
  return with_norm(asked, y);
}

mx::array outer_with_mlx(const OuterAsked& asked) {
  const auto s = asked.stream;
  const int groups = static_cast<int>(asked.groups);
  const int in_group = static_cast<int>(asked.in_group()), c_out = static_cast<int>(asked.c_out);
  const OffsetRows rows(*asked.relation, s);
  const mx::array x = mx::astype(asked.x, mx::float32, s);
  const mx::array g = mx::astype(asked.g, mx::float32, s);
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
  return mx::astype(mx::stack(parts, 0, s), asked.dtype(), s);
}

mx::array linear_with_mlx(const ConvAsked& asked) {
  const auto s = asked.stream;
  const ConvAsked dense = with_dense_weight(asked);
  // Packed weights: in float32, with the weight rounded to the dtype as everywhere.
  // quantized_matmul of a 16-bit dtype rounds inside the sum on some devices.
  const auto exact = [&](const mx::array& a) { return asked.weight.codes ? as_float32(a, s) : a; };
  const mx::array x = exact(dense.x), w = mx::squeeze(exact(dense.weight.w), 0, s);
  const mx::array y = dense.bias ? product_plus(exact(*dense.bias), x, w, s) : product(x, w, s);
  return with_norm(asked, y);
}

}  // namespace lattice::routes
