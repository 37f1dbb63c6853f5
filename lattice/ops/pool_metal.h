// Pooling over a relation on a GPU: its edges by output row are segments (segments_metal.h).
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

// Edges of an output row are taken as KernelRelation.output_csr has them: by offset, then input
// row, unless the user gave the edges.
mx::array pool_with_metal(const Call& call);
// Of a relation or of groups of rows.
mx::array argmax_with_metal(const Call& call);

}  // namespace lattice
