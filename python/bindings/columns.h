// Columns of clouds and NumPy arrays share their memory.
#pragma once

#include "bind.h"
#include "lattice/core/cloud.h"

// A NumPy array in the memory of a column: (N,), or (N, k) where there are several values.
nb::object numpy_of(const lattice::Column& column, bool two_axes = false);
// The memory of a NumPy array (N,) or (N, k), which the column keeps alive.
lattice::Column column_of(nb::handle object);
