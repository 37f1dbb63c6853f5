// per_edge_apply and per_edge_outer from plain MLX operations.
#include <mlx/ops.h>

#include "lattice/routes/per_edge.h"
#include "lattice/routes/products.h"

namespace lattice::routes {
namespace {

// (E, G, C) rows of the edges, in float32.
mx::array taken(const ConvProblem& z, const mx::array& x, const mx::array& rows,
                mx::StreamOrDevice s) {
  const int groups = static_cast<int>(z.groups);
  return mx::reshape(mx::take(mx::astype(x, mx::float32, s), rows, 0, s),
                     {static_cast<int>(z.n_edges()), groups, x.shape(1) / groups}, s);
}

}  // namespace

mx::array per_edge_apply_with_mlx(const PerEdgeAsked& asked) {
  const auto s = asked.stream;
  const Edges& edges = asked.relation->edges();
  const mx::array zeros = mx::zeros(asked.rows().shape, mx::float32, s);
  if (asked.n_edges() == 0) return mx::astype(zeros, asked.dtype(), s);
  const mx::array x = mx::expand_dims(taken(asked, asked.x, edges.in_rows, s), 2, s);
  const mx::array a =
      mx::take(mx::astype(asked.matrices_of_edges, mx::float32, s), edges.kernel_ids, 0, s);
  const mx::array y =
      mx::reshape(product(x, a, s), {static_cast<int>(asked.n_edges()), 1, zeros.shape(1)}, s);
  return mx::astype(mx::scatter_add(zeros, {edges.out_rows}, y, {0}, s), asked.dtype(), s);
}

mx::array per_edge_outer_with_mlx(const OuterAsked& asked) {
  const auto s = asked.stream;
  const Edges& edges = asked.relation->edges();
  const mx::array zeros = mx::zeros(asked.matrices().shape, mx::float32, s);
  if (asked.n_edges() == 0) return mx::astype(zeros, asked.dtype(), s);
  const mx::array u =
      mx::multiply(mx::expand_dims(taken(asked, asked.x, edges.in_rows, s), 3, s),
                   mx::expand_dims(taken(asked, asked.g, edges.out_rows, s), 2, s), s);
  return mx::astype(mx::scatter_add(zeros, {edges.kernel_ids}, mx::expand_dims(u, 1, s), {0}, s),
                    asked.dtype(), s);
}

}  // namespace lattice::routes
