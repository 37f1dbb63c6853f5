// Reductions over groups of rows on a GPU: launches of kernels/metal/segments.metal.
//
// Order of summation: entries in their order, in float32. A long segment is summed in pieces
// (core/segment_pieces.h), and the values of the pieces are reduced in order. The result is rounded
// once.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lattice/routes/pool.h"

namespace lattice::routes {

// Entries of segment s: offsets[s] .. offsets[s + 1].
struct MetalSegments {
  mx::array offsets;                 // (n + 1,) int32, evaluated
  std::optional<mx::array> rows;     // (E,) int32; none: entry e is row e
  std::optional<mx::array> weights;  // (E,) float32; none: 1. Of sum and mean.
  // Of the offsets: cut_segments(), which their owner keeps.
  std::span<const SegmentPieces> pieces = {};
  int64_t n() const { return offsets.shape(0) - 1; }
};

// out[s] = sum, mean, max or min over the entries of weights[e] x[rows[e]]; 0 without entries.
mx::array metal_reduce(const mx::array& x, const MetalSegments& segments, ReduceMode mode,
                       mx::Dtype dtype, mx::StreamOrDevice s);

// out[s, c] = sum over the entries with a[s, c] == b[rows[e], c] of x[rows[e], c]; without x the
// number of them. float32.
mx::array metal_match(const mx::array& a, const mx::array& b, const std::optional<mx::array>& x,
                      const MetalSegments& segments, mx::StreamOrDevice s);

// (n, channels) int32: the smallest row with the maximum, or the minimum, of each segment; -1
// without entries.
mx::array metal_argmax(const mx::array& x, const MetalSegments& segments, bool minimum,
                       mx::StreamOrDevice s);

// out[j] = x[rows[j]], fill where rows[j] < 0.
mx::array metal_gather(const mx::array& x, const mx::array& rows, float fill, mx::StreamOrDevice s);

// The groups of a call.
MetalSegments group_segments(const RowGroups& groups);

}  // namespace lattice::routes
