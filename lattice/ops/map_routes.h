// Rows of the route table for map_rows.
#pragma once

#include <vector>

#include "lattice/ops/oracle_cases.h"
#include "lattice/ops/routes.h"

namespace lattice {

void add_map_routes(std::vector<Route>& rows);
// Sums, means and maxima with and without weights, of empty rows and of one long row, and
// transposed maps.
void add_map_cases(std::vector<OracleCase>& cases);

}  // namespace lattice
