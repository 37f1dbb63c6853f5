// Rows of the route table for per_edge_apply and per_edge_outer: products with a matrix of its own
// for (nearly) each edge.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

void add_triplets_routes(std::vector<Route>& rows);

}  // namespace lattice
