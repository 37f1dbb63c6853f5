// The edges of each offset in parts of a fixed length, for kernels with one group of threads per
// part.
#pragma once

#include "lattice/core/segment_pieces.h"

namespace lattice {

struct EdgeParts {
  // (4 * count,) int32: offset, first edge, end, place in the result of each part. Edges count as
  // Relation::kernel_csr() has them. An offset without edges has one part too.
  mx::array table;
  // (n_k + 1,) int32: the parts of offset k are offsets[k] .. offsets[k + 1]; and their pieces.
  mx::array offsets;
  std::vector<SegmentPieces> pieces;
  int count = 0;
  bool direct = true;  // one part per offset: its place is the offset
};

// row_offsets (n_k + 1,) int32, evaluated.
EdgeParts make_edge_parts(const mx::array& row_offsets, int32_t length);

}  // namespace lattice
