// Launches of kernels/metal/{conv,outer}.metal: the rows "metal.*" of conv, linear, outer,
// per_edge_apply and per_edge_outer.
//
// The relation's index arrays are inputs of the kernels; they are made on the CPU once per
// relation, in memory that both share. Work with no edge or no channel launches nothing. Matrix
// units are 8 x 8 simdgroup matrices on every tier: the tensor operations of a neural accelerator
// can be neither compiled nor run where this was written.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

// Channels of a group fill an 8 x 8 matrix.
Rejection needs_tiles(const Call& call);
// Every output row has at most one edge for an offset, and the map is not too long.
Rejection needs_map(const Call& call);
// Every output row has exactly one edge: up by 2 x 2 x 2, or the gradient of down by 2 x 2 x 2.
Rejection needs_one_edge(const Call& call);
// A tile of 64 rows has edges of most offsets, or there are few of either.
Rejection needs_full_tiles(const Call& call);
// Rows may be sorted by mask.
Rejection needs_sorted_map(const Call& call);
// A reversed submanifold relation whose rows may be sorted before it is reversed.
Rejection needs_mirror(const Call& call);

// conv and linear, dense or packed: a thread per output element.
mx::array conv_metal_rows(const Call& call);
// Tiles over the map; of linear: over the rows themselves.
mx::array conv_metal_tiles(const Call& call);
// Tiles over the map with sorted rows.
mx::array conv_metal_sorted(const Call& call);
// The same for a reversed submanifold relation: i = o + offset k is o = i + offset K - 1 - k, so
// that the relation itself, with the weights in reverse order, has the same result.
mx::array conv_metal_mirrored(const Call& call);
// Tiles over the lists of offsets, where every output row has one edge.
mx::array conv_metal_lists(const Call& call);
// Tiles of rows in local order; rows of x that share output and offset are added first.
mx::array conv_metal_buckets(const Call& call);
// Packed weights: the tiles that dense weights take.
mx::array conv_metal_packed(const Call& call);
// One matrix an edge: conv_metal_rows on (K, G, C, M).
mx::array per_edge_apply_metal(const Call& call);

mx::array outer_metal_rows(const Call& call);
mx::array outer_metal_tiles(const Call& call);
// Result (K, G, C, M).
mx::array per_edge_outer_metal(const Call& call);

}  // namespace lattice
