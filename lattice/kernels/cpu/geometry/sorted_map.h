// The map that tiles of a GPU read: output rows sorted by the mask of their offsets.
//
//   masks[o]                  bit k: row o has an edge of offset k
//   order[p]                  the output row at sorted position p: ascending by (mask, row)
//   map[k * n_out + p]        the input row of row order[p] and offset k, or -1
//   tile_masks[p / 16]        OR of the masks of 16 sorted rows; four words per 64 rows
#pragma once

#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// At most 32 offsets. map has n_k * n_out entries, order n_out, tile_masks 4 * ceil(n_out / 64).
// Returns false when some (row, offset) has two edges, which a map cannot hold.
bool sorted_map(const RelationLists& lists, int32_t* map, int32_t* order, uint32_t* tile_masks);

}  // namespace lattice::cpu
