// Rows of the route table for apply_each and outer_each: products with a matrix of its own for (nearly) each edge.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

void add_triplets_routes(std::vector<Route>& rows);

}  // namespace lattice
