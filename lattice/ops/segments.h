/// @file
/// Reductions of rows over segments, as point clouds of different sizes need them.
///
///     segment_reduce:          y[s] = sum, mean, max or min of x[o] .. x[o + lengths[s] - 1],
///                              o = lengths[0] + ... + lengths[s - 1]
///     segment_reduce_offsets:  the same, segment s is rows offsets[s] .. offsets[s + 1]
///     indexed_segment_reduce:  y[s] over x[indices[e]], e in segment s;
///                              an index may occur many times
///     scatter_reduce:          y[s] over the rows r with ids[r] == s, in any order
///     segment_expand:          x[r] = y[segment of r]: the adjoint of the sum
///     segment_softmax:         exp(x[r] - max) / sum of exp(x - max), both over the segment of r
///
/// x has rank >= 1: axis 0 is reduced, the others are kept. An empty segment gives 0 for sum and
/// mean, -inf for max, inf for min, or `empty_value`, and has no gradient. A NaN wins max and min
/// and gets no gradient. Dtypes: float32, float16, bfloat16. Sums are float32 in the order of
/// kernels/cpu/features/segments.h, rounded once. Everything is differentiable to any order.
/// Lengths and indices are evaluated and checked here.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>

#include "lattice/core/names.h"

namespace lattice {

/// How the rows of a segment become one.
struct SegmentOptions {
  Reduction reduction = Reduction::sum;             ///< sum, mean, max or min
  Ties ties = Ties::split;                          ///< gradients of equal maxima
  std::optional<float> empty_value = std::nullopt;  ///< what an empty segment gives
};
/// Names as Python has them; std::invalid_argument lists the choices.
LATTICE_API SegmentOptions segment_options(std::string_view reduction, std::string_view ties,
                                           std::optional<float> empty_value,
                                           std::string_view function);

/// (S, ...): segments of x by lengths (S,), which sum to its rows.
LATTICE_API mx::array segment_reduce(const mx::array& x, const mx::array& lengths,
                                     const SegmentOptions& options = {}, mx::StreamOrDevice s = {});
/// (S, ...): segments of x by borders (S + 1,), which ascend from 0 to its rows.
LATTICE_API mx::array segment_reduce_offsets(const mx::array& x, const mx::array& offsets,
                                             const SegmentOptions& options = {},
                                             mx::StreamOrDevice s = {});
/// (S, ...): segments by lengths (S,) of the rows of x that indices name.
LATTICE_API mx::array indexed_segment_reduce(const mx::array& x, const mx::array& indices,
                                             const mx::array& lengths,
                                             const SegmentOptions& options = {},
                                             mx::StreamOrDevice s = {});
/// (n, ...): rows of x by their number ids (N,) in 0..n-1.
LATTICE_API mx::array scatter_reduce(const mx::array& x, const mx::array& ids, int64_t n,
                                     const SegmentOptions& options = {}, mx::StreamOrDevice s = {});
/// (N, ...): the row of y (S, ...) of each segment, once for each of its rows.
LATTICE_API mx::array segment_expand(const mx::array& y, const mx::array& lengths,
                                     mx::StreamOrDevice s = {});
/// (S + 1,) int32: where each segment begins, and the sum of the lengths.
LATTICE_API mx::array segment_offsets(const mx::array& lengths);
/// (N,) int32: the segment of each row, N the sum of the lengths.
LATTICE_API mx::array segment_indices(const mx::array& lengths);
/// Of x's shape: the softmax along axis 0 inside each segment.
LATTICE_API mx::array segment_softmax(const mx::array& x, const mx::array& lengths,
                                      mx::StreamOrDevice s = {});

}  // namespace lattice
