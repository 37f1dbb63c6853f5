// Launchers of per_edge_apply and per_edge_outer: products with a matrix of its own for (nearly)
// each edge.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array per_edge_apply_pairs(const Call& call, const Route& route);
mx::array per_edge_apply_reference(const Call& call, const Route& route);
// One matrix per edge: conv_metal_rows on (K, G, C, M).
mx::array per_edge_apply_metal(const Call& call);
mx::array per_edge_apply_with_mlx(const Call& call);

// Result (K, G, C, M).
mx::array per_edge_outer_pairs(const Call& call, const Route& route);
mx::array per_edge_outer_reference(const Call& call, const Route& route);
mx::array per_edge_outer_metal(const Call& call);
mx::array per_edge_outer_with_mlx(const Call& call);

}  // namespace lattice
