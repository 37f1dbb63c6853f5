// The one table of routes: every way to evaluate an operation is a row, tried in order; one of the
// rows of an operation and device always fits. Tests, benchmarks, explain() and the documentation
// read the same rows.
#pragma once

#include <span>

#include "lattice/routes/route.h"

namespace lattice {

std::span<const Route> routes();

}  // namespace lattice
