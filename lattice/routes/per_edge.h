// Launchers of per_edge_apply and per_edge_outer: products where (nearly) each edge has a matrix of
// its own. Some rows hand a relation with several edges per matrix to the kernels of conv and
// outer.
#pragma once

#include "lattice/routes/conv.h"

namespace lattice::routes {

mx::array per_edge_apply_pairs(const PerEdgeAsked& asked, const Route& route);
mx::array per_edge_apply_buckets(const PerEdgeAsked& asked, const Route& route);
mx::array per_edge_apply_tiles(const PerEdgeAsked& asked, const Route& route);
mx::array per_edge_apply_reference(const PerEdgeAsked& asked, const Route& route);
mx::array per_edge_apply_metal_buckets(const PerEdgeAsked& asked);
// conv_metal_rows on (K, G, C, M).
mx::array per_edge_apply_metal_rows(const PerEdgeAsked& asked);
mx::array per_edge_apply_with_mlx(const PerEdgeAsked& asked);

// Result (K, G, C, M).
mx::array per_edge_outer_pairs(const OuterAsked& asked, const Route& route);
mx::array per_edge_outer_buckets(const OuterAsked& asked, const Route& route);
mx::array per_edge_outer_tiles(const OuterAsked& asked, const Route& route);
mx::array per_edge_outer_reference(const OuterAsked& asked, const Route& route);
mx::array per_edge_outer_metal_tiles(const OuterAsked& asked);
mx::array per_edge_outer_metal_rows(const OuterAsked& asked);
mx::array per_edge_outer_with_mlx(const OuterAsked& asked);

}  // namespace lattice::routes
