// Finds distinct rows, and rows by value, by the route that is chosen (routes/geometry.h).
// relation_builder() of relations.h does the same for relations.
#pragma once

#include "lattice/core/coordinate_set.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {

// The distinct rows, first seen first.
cpu::Distinct distinct_rows(const CoordinateSet& coords, mx::StreamOrDevice s);
// (M, 4): the same as coordinates.
mx::array distinct_coords(const CoordinateSet& coords, mx::StreamOrDevice s);
// For each query the first equal row of coords, or -1.
cpu::Buffer<int32_t> find_rows(const CoordinateSet& coords, const CoordinateSet& queries,
                               mx::StreamOrDevice s);
}  // namespace lattice
