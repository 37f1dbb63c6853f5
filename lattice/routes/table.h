// The one table of routes: every way to evaluate an operation is a row. Rows are tried in order;
// for each operation and device some row always fits. Tests, benchmarks, explain() and the
// documentation read the same rows.
#pragma once

#include <span>

#include "lattice/routes/route.h"

namespace lattice {

std::span<const Route> routes();

}  // namespace lattice
