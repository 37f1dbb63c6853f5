// per_edge_apply and per_edge_outer from plain MLX operations.
#include <mlx/ops.h>

#include "lattice/routes/per_edge.h"
#include "lattice/routes/products.h"

namespace lattice {
namespace {

mx::Shape rows_shape(const Call& call) {
  return {static_cast<int>(call.n_out()), static_cast<int>(call.c_out)};
}
mx::Shape matrices_shape(const Call& call) {
  return {static_cast<int>(call.relation->n_kernels()), static_cast<int>(call.groups),
          static_cast<int>(call.c_in / call.groups), static_cast<int>(call.c_out / call.groups)};
}

// (E, G, C) rows of the edges, in float32.
mx::array taken(const Call& call, size_t i, const mx::array& rows, int64_t channels) {
  const mx::array x =
      mx::take(mx::astype(call.inputs[i], mx::float32, call.stream), rows, 0, call.stream);
  return mx::reshape(x,
                     {static_cast<int>(call.n_edges()), static_cast<int>(call.groups),
                      static_cast<int>(channels / call.groups)},
                     call.stream);
}

}  // namespace

mx::array per_edge_apply_with_mlx(const Call& call) {
  const auto s = call.stream;
  const Edges& edges = call.relation->edges();
  const mx::array zeros = mx::zeros(rows_shape(call), mx::float32, s);
  if (call.n_edges() == 0) return mx::astype(zeros, call.dtype, s);
  const mx::array x = mx::expand_dims(taken(call, 0, edges.in_rows, call.c_in), 2, s);
  const mx::array a = mx::take(mx::astype(call.inputs[1], mx::float32, s), edges.kernel_ids, 0, s);
  const mx::array y =
      mx::reshape(product(x, a, s), {static_cast<int>(call.n_edges()), 1, zeros.shape(1)}, s);
  return mx::astype(mx::scatter_add(zeros, {edges.out_rows}, y, {0}, s), call.dtype, s);
}

mx::array per_edge_outer_with_mlx(const Call& call) {
  const auto s = call.stream;
  const Edges& edges = call.relation->edges();
  const mx::array zeros = mx::zeros(matrices_shape(call), mx::float32, s);
  if (call.n_edges() == 0) return mx::astype(zeros, call.dtype, s);
  const mx::array u =
      mx::multiply(mx::expand_dims(taken(call, 0, edges.in_rows, call.c_in), 3, s),
                   mx::expand_dims(taken(call, 1, edges.out_rows, call.c_out), 2, s), s);
  return mx::astype(mx::scatter_add(zeros, {edges.kernel_ids}, mx::expand_dims(u, 1, s), {0}, s),
                    call.dtype, s);
}

}  // namespace lattice
