// Orders of coordinates along space-filling curves.
//
//   morton_order    rows sorted by (batch, M),
//                   M = the interleaved bits of z, y, x in offset binary (c + 2^63)
//   hilbert_order   rows sorted by (batch, H), H = the position on the Hilbert curve through the
//                   cube of the smallest side 2^b that starts at (min x, min y, min z) and holds
//                   all rows
//
// Both are stable: equal coordinates keep the order of their rows. M compares two coordinates
// without regard to the others, and equal values in int32 and int64 have the same order. Negative
// coordinates and the ends of both types are ordinary.
//
// M needs 192 bits, but bits that are equal in all rows, and the repeated sign bits of small
// numbers, decide nothing: with v value bits per axis, v + 1 remain. Up to 64 bits in all one radix
// sort does; beyond, one per 21 bits of each axis. Measured, ns per row, one thread, lidar / room:
// morton_order 17 / 18, hilbert_order 28 / 29 (index_coords 11).
#pragma once

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

// Position p of the order is row order[p].
Buffer<int32_t> morton_order(const CoordSpan& coords);
Buffer<int32_t> hilbert_order(const CoordSpan& coords);

// code = batch << 60 | interleaved bits, x lowest, for x, y, z in [0, 2^20) and batch in [0, 8).
// Other values throw std::overflow_error, which names the axis, the value and the first such row.
// codes has coords.rows entries.
void morton_codes(const CoordSpan& coords, std::span<int64_t> codes);

}  // namespace lattice::cpu
