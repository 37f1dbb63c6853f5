// Eight children of a coordinate as one byte: child = 2 * parent + (bx, by, bz), index = bx + 2 by
// + 4 bz.
//
//   occupancy_downsample   parent = floor(c / 2); bit `index` of the mask of the parent is set for
//                          each child that is present
//   occupancy_expand       the children of the set bits, parents in order, then ascending index
//   child_coords           the coordinates of (parent row, index) pairs
//
// Expanding what was downsampled gives the same set of coordinates.
#pragma once

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

struct Occupancy {
  Buffer<std::byte> parents;    // (n, 4) of the dtype of the input, first seen first
  Buffer<uint8_t> masks;        // n
  Buffer<int32_t> parent_rows;  // the parent of each input row
};
Occupancy occupancy_downsample(const CoordSpan& coords);

struct Children {
  Buffer<int32_t> parent_rows;
  Buffer<int32_t> indices;  // 0..7
};
// Throws std::length_error when there are 2^31 children or more.
Children occupancy_expand(std::span<const uint8_t> masks);

// out[i] = child indices[i] of row parent_rows[i] of parents. `out` has parent_rows.size() * 4
// entries of the dtype of parents. Throws std::invalid_argument if a row or an index is out of
// range, or if sizes differ. Throws std::overflow_error if a child leaves the dtype. Both name the
// first such entry.
void child_coords(const CoordSpan& parents, std::span<const int32_t> parent_rows,
                  std::span<const int32_t> indices, void* out);

}  // namespace lattice::cpu
