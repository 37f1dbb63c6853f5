// Sets of voxels as bytes: the occupancy of an octree, breadth first, through an adaptive context
// model.
//
// The cube of side 2^depth around all rows is halved level by level (Meagher 1982); a node is one
// byte, the mask of its occupied children. Nodes of a level are coded in Morton order, so for
// each child bit are known: which of the 26 neighbors of its node exist, and the children of those
// that came before. Their patterns are the contexts (as in Schnabel and Klein 2006 and in MPEG
// G-PCC); bit_model.h mixes them, range_coder.h writes. No floating point.
//
// Rows come back in Morton order: by batch, then as morton_order() of curves.h sorts them.
#pragma once

#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/coding/meter.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

// Rows of int32 in Morton order, free of duplicates (std::invalid_argument otherwise), batch >= 0.
std::vector<uint8_t> encode_octree(const CoordSpan& sorted, std::string_view operation,
                                   Meter meter = {});

// (n, 4) int32. Throws std::invalid_argument for bytes that encode_octree did not write; memory is
// bounded by what the bytes read so far allow.
std::vector<int32_t> decode_octree(Bytes data, std::string_view operation, Meter meter = {});

}  // namespace lattice::cpu
