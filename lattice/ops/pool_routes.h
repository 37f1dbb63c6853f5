// Rows of the route table for pool, segments and gather.
#pragma once

#include <vector>

#include "lattice/ops/routes.h"

namespace lattice {

void add_pool_routes(std::vector<Route>& rows);

}  // namespace lattice
