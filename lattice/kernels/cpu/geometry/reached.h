// Relations onto every cell that a kernel reaches, inside of bounds: the support of the detectors
// that were trained with spconv.
//
//   gathering:  in = out * stride + t * dilation - padding,   t = 0 .. size - 1 on every axis
//   scattering: out = in * stride + t * dilation - padding
//
// An output cell exists if some input row reaches it with some tap t, and if it lies inside of the
// output bounds. Rows come sorted by (batch, x, y, z), or in the order in which a loop over the
// taps, and inside over the input rows, meets them first.
//
// Each row lists the taps that fit on each axis, so that a strided kernel looks only at cells that
// exist: at 3.4 of 27 on average for size 3 and stride 2. Where a bit for every cell fits, marking
// them sorts them, and the number of bits before a cell is its row. Otherwise the cells are sorted
// as keys, once each, and then walked as in relations.h.
#pragma once

#include <memory>
#include <optional>

#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice::cpu {

// The bounds of the output of a kernel on input inside of `in`. Gathering: cells whose kernel lies
// inside of `in`, widened by the padding; scattering: (high - 1) * stride - 2 * padding + reach
// + 1. high <= low on some axis when there is no such cell. std::overflow_error when one leaves
// int64.
Bounds reached_bounds(const Bounds& in, const Kernel& kernel, bool scatters);

// Input rows may have one coordinate; then all of them reach the same cells. Throws
// std::overflow_error when a cell leaves the dtype, std::length_error when there are 2^31
// edges or more.
RelationLists relate_reached(const CoordSpan& coords, const std::shared_ptr<const CoordIndex>& in,
                             const Kernel& kernel, bool scatters,
                             const std::optional<Bounds>& out_bounds, RowOrder order,
                             MadeCoords* made);

}  // namespace lattice::cpu
