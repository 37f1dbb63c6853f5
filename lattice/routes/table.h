// The list of all tables of routes, which routes(), LATTICE_ROUTE, the tests and the documentation
// read. The rows of a family are in <family>_rows.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lattice/routes/route.h"

namespace lattice::routes {

const std::vector<const AnyTable*>& tables();

// The rows of all tables, in the order in which they are tried.
LATTICE_API std::vector<const Route*> all();

// How often kernels of a route ran in this process. Rows of kernels on the CPU count when MLX
// evaluates the node, all other rows when the node is built or the result is computed.
LATTICE_API int64_t run_count(const std::string& operation, const std::string& route);

}  // namespace lattice::routes
