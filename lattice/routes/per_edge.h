// Launchers of per_edge_apply and per_edge_outer: products where (nearly) each edge has a matrix of
// its own. Some rows hand a relation with several edges per matrix to the kernels of conv and
// outer.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

// Fewer than two edges per matrix: nothing is gained by keeping a matrix in the cache.
Rejection is_one_matrix_per_edge(const Call& call);
Rejection are_many_edges_per_matrix(const Call& call);

mx::array per_edge_apply_pairs(const Call& call, const Route& route);
mx::array per_edge_apply_buckets(const Call& call, const Route& route);
mx::array per_edge_apply_tiles(const Call& call, const Route& route);
mx::array per_edge_apply_reference(const Call& call, const Route& route);
mx::array per_edge_apply_metal_buckets(const Call& call);
// conv_metal_rows on (K, G, C, M).
mx::array per_edge_apply_metal_rows(const Call& call);
mx::array per_edge_apply_with_mlx(const Call& call);

// Result (K, G, C, M).
mx::array per_edge_outer_pairs(const Call& call, const Route& route);
mx::array per_edge_outer_buckets(const Call& call, const Route& route);
mx::array per_edge_outer_tiles(const Call& call, const Route& route);
mx::array per_edge_outer_reference(const Call& call, const Route& route);
mx::array per_edge_outer_metal_tiles(const Call& call);
mx::array per_edge_outer_metal_rows(const Call& call);
mx::array per_edge_outer_with_mlx(const Call& call);

}  // namespace lattice
