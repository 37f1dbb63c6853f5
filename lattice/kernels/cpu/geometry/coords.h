// Operations on coordinate sets by value: distinct rows, look-up, floor division.
//
// Every one sorts once (index_coords) and then walks sorted sequences; orders of results are stated
// and deterministic.
#pragma once

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

// Distinct rows in the order of first appearance. Distinct row d first appears at input row
// first[d]; input row r is distinct row inverse[r].
struct Distinct {
  Buffer<int32_t> first;
  Buffer<int32_t> inverse;
};
Distinct distinct_rows(const CoordIndex& index);

// For each query the smallest row of the index with the same coordinate, or -1. Both are sorted and
// merged.
Buffer<int32_t> lookup(const CoordIndex& index, const CoordIndex& queries);

// out = floor(c / stride), batch kept. `out` has coords.rows * 4 entries of the coordinate dtype.
void floor_coords(const CoordSpan& coords, const Triple& stride, void* out);

// Copies rows[i] of coords to out.
void take_rows(const CoordSpan& coords, std::span<const int32_t> rows, void* out);

// Row i of the result is lhs row lhs[i] and rhs row rhs[i]; -1 where that side has none. inner,
// left: lhs order; right: rhs order; outer: lhs order, then the rhs rows without partner.
struct Alignment {
  Buffer<int32_t> lhs;
  Buffer<int32_t> rhs;
};
Alignment align(const CoordIndex& lhs, const CoordIndex& rhs, Join join);

// Ascending list of the rows with keep[row] != 0.
Buffer<int32_t> rows_where(std::span<const uint8_t> keep);

}  // namespace lattice::cpu
