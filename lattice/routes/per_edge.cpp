#include "lattice/routes/per_edge.h"

#include <mlx/ops.h>

#include "lattice/routes/conv.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

// The same call for kernels of conv.
Call as_conv(const Call& call) {
  Call same = call;
  same.inputs[1] = side_by_side(call.inputs[1], call.stream);
  return same;
}

// The result (K, C, G M) of a kernel of outer as (K, G, C, M).
mx::array by_group(const Call& call, const mx::array& u) {
  const int groups = static_cast<int>(call.groups), k = u.shape(0), c = u.shape(1);
  return mx::transpose(mx::reshape(u, {k, c, groups, u.shape(2) / groups}, call.stream),
                       {0, 2, 1, 3}, call.stream);
}

}  // namespace

Rejection are_many_edges_per_matrix(const Call& call) {
  if (call.relation->edge_count() < 2 * call.relation->n_kernels())
    return {Rejection::Step::relation, "fewer than 2 edges per matrix"};
  return {};
}

Rejection is_one_matrix_per_edge(const Call& call) {
  if (are_many_edges_per_matrix(call).fits())
    return {Rejection::Step::relation, "2 or more edges per matrix"};
  return {};
}

mx::array per_edge_apply_buckets(const Call& call, const Route& route) {
  return conv_buckets(as_conv(call), route);
}
mx::array per_edge_apply_tiles(const Call& call, const Route& route) {
  return conv_tiles(as_conv(call), route);
}
mx::array per_edge_apply_metal_buckets(const Call& call) {
  return conv_metal_buckets(as_conv(call));
}

mx::array per_edge_outer_buckets(const Call& call, const Route& route) {
  return by_group(call, outer_buckets(call, route));
}
mx::array per_edge_outer_tiles(const Call& call, const Route& route) {
  return by_group(call, outer_tiles(call, route));
}
mx::array per_edge_outer_metal_tiles(const Call& call) {
  return by_group(call, outer_metal_tiles(call));
}

}  // namespace lattice
