// Layouts of attention and pooling: codes along a curve, patches of an order, windows of a lattice,
// and blocks of an order that are pooled.
//
//   code[r] = batch << 3 depth | position of c[r] + offset on the curve of side 2^depth
//   z:        bit 3i + 2 is bit i of x, 3i + 1 of y, 3i of z        (Morton 1966)
//   hilbert:  Skilling 2004 with axes x, y, z; interleaved as z
//   *-trans:  x and y swapped first
//
// depth is the bit length of the largest c + offset of all axes. offset is 0 unless a coordinate is
// negative. Then offset is the smallest 2^b >= -c with b >= 10: blocks of 2^10 cells stay blocks.
// Both curves are hierarchical: code >> 3 is the code of floor(c / 2) at depth - 1.
//
// Slots are places in segments. Segment s is slots offsets[s] .. offsets[s + 1]; slot p reads row
// rows[p], and row r owns slot slots[r]. A patch may borrow rows of the patch before it. Then a row
// is in several slots; its own slot is the one whose result counts.
#pragma once

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

// What turns coordinates into cells of the curve.
struct CurveFrame {
  int depth = 0;
  int64_t offset = 0;
  int batch_bits = 0;
};
// Throws std::overflow_error where 3 depth and the bits of the batch exceed 63.
CurveFrame curve_frame(const Box& box);

Buffer<int64_t> curve_codes(const CoordSpan& coords, Curve curve, const CurveFrame& frame);

// Rows by ascending code, equal codes by ascending row.
struct CurveOrder {
  Buffer<uint64_t> codes;  // sorted
  Buffer<int32_t> rows;
};
CurveOrder curve_order(const CoordSpan& coords, Curve curve, const CurveFrame& frame);

struct Slots {
  Buffer<int32_t> rows, slots, offsets;
};

// Patches of `size` rows along an order whose clouds follow each other, `clouds` holding their
// lengths. A cloud of n > size rows has ceil(n / size) patches; the last one holds the last `size`
// rows of the cloud, its own rows first: slot p >= n of a cloud repeats slot p - size. A cloud of
// n <= size rows is one segment of n slots; an empty cloud has none.
Slots patch_slots(std::span<const int32_t> order, std::span<const int64_t> clouds, int64_t size);

// One segment per batch and window floor((c + shift) / size), sorted; its rows ascend. A size of 0
// makes all cells of the axis one window. 0 <= shift.
Slots window_slots(const CoordSpan& coords, const Triple& size, const Triple& shift);

// Blocks of 2^log2 cells per axis, sorted by the code of the curve. Row r is in block block_of[r];
// first[b] is one row of block b. log2 above the depth counts as 0.
struct Blocks {
  Buffer<int32_t> block_of, first;
  int log2 = 0;
};
Blocks curve_blocks(const CoordSpan& coords, Curve curve, int log2, const CurveFrame& frame);

}  // namespace lattice::cpu
