#include "lattice/routes/per_edge.h"

#include <mlx/ops.h>

#include "lattice/routes/conv.h"
#include "lattice/routes/packed_weight.h"

namespace lattice::routes {
namespace {

// The same question for kernels of conv.
ConvAsked as_conv(const PerEdgeAsked& asked) {
  ConvAsked conv{asked, asked.x, {side_by_side(asked.matrices_of_edges, asked.stream)}};
  conv.stream = asked.stream;
  return conv;
}

// The result (K, C, G M) of a kernel of outer as (K, G, C, M).
mx::array by_group(const OuterAsked& asked, const mx::array& u) {
  const int groups = static_cast<int>(asked.groups), k = u.shape(0), c = u.shape(1);
  return mx::transpose(mx::reshape(u, {k, c, groups, u.shape(2) / groups}, asked.stream),
                       {0, 2, 1, 3}, asked.stream);
}

}  // namespace

mx::array per_edge_apply_buckets(const PerEdgeAsked& asked, const Route& route) {
  return conv_buckets(as_conv(asked), route);
}
mx::array per_edge_apply_tiles(const PerEdgeAsked& asked, const Route& route) {
  return conv_tiles(as_conv(asked), route);
}
mx::array per_edge_apply_metal_buckets(const PerEdgeAsked& asked) {
  return conv_metal_buckets(as_conv(asked));
}

mx::array per_edge_outer_buckets(const OuterAsked& asked, const Route& route) {
  return by_group(asked, outer_buckets(asked, route));
}
mx::array per_edge_outer_tiles(const OuterAsked& asked, const Route& route) {
  return by_group(asked, outer_tiles(asked, route));
}
mx::array per_edge_outer_metal_tiles(const OuterAsked& asked) {
  return by_group(asked, outer_metal_tiles(asked));
}

}  // namespace lattice::routes
