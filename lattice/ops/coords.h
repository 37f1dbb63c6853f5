// Operations on coordinate sets by value. Rows are (batch, x, y, z), int32 or int64, used together
// only with equal dtype.
//
// Results are concrete: values are computed when the function is called, and arrays have exactly
// the rows that they need. The CPU computes them, because memory is shared, unless a route of Metal
// is forced (ops/geometry.h). Orders are stated, and do not depend on the number of threads.
// Errors: std::invalid_argument for shapes, dtypes and row numbers, std::overflow_error where a
// result leaves its type.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <variant>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/coordinate_values.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {

using cpu::Join;
using cpu::Triple;

// An array, or a CoordinateSet, which sorts its rows once for all calls.
class CoordsLike {
 public:
  CoordsLike(mx::array coords) : value_(std::move(coords)) {}      // NOLINT: implicit on purpose
  CoordsLike(CoordinateSet coords) : value_(std::move(coords)) {}  // NOLINT: implicit on purpose
  CoordinateSet set(std::string_view operation, std::string_view what = "coords") const;

 private:
  std::variant<mx::array, CoordinateSet> value_;
};

// Distinct floor(c / stride), first seen first. stride >= 1.
mx::array downsample_coords(const CoordsLike& coords, const Triple& stride = {2, 2, 2},
                            mx::StreamOrDevice s = {});

// Distinct rows, first seen first, lhs before rhs: of either, of both, of lhs but not of rhs.
mx::array union_coords(const CoordsLike& lhs, const CoordsLike& rhs, mx::StreamOrDevice s = {});
mx::array intersection_coords(const CoordsLike& lhs, const CoordsLike& rhs,
                              mx::StreamOrDevice s = {});
mx::array difference_coords(const CoordsLike& lhs, const CoordsLike& rhs,
                            mx::StreamOrDevice s = {});

// (Q,) int32: the first row of coords that equals the query, or -1. contains: the same as bool.
mx::array lookup_coords(const CoordsLike& coords, const CoordsLike& queries,
                        mx::StreamOrDevice s = {});
mx::array contains_coords(const CoordsLike& coords, const CoordsLike& queries,
                          mx::StreamOrDevice s = {});
// For each target row the first equal source row, or -1.
mx::array inverse_map(const CoordsLike& source, const CoordsLike& target,
                      mx::StreamOrDevice s = {});

// Joins two sets without duplicates. `*_active`: (1,) int32, rows behind that number do not take
// part; none: all do. Order of inner and left: lhs; right: rhs order; outer: lhs, then the rhs rows
// without partner.
SparseAlignment build_sparse_alignment(const CoordsLike& lhs,
                                       const std::optional<mx::array>& lhs_active,
                                       const CoordsLike& rhs,
                                       const std::optional<mx::array>& rhs_active, Join join,
                                       mx::StreamOrDevice s = {});
// "inner", "left", "right" or "outer".
Join parse_join(std::string_view name, std::string_view operation);

// (N,) int64: batch << 60 | interleaved bits, x lowest. x, y, z in 0..2^20-1, batch in 0..7, else
// std::overflow_error.
mx::array morton_codes(const CoordsLike& coords, mx::StreamOrDevice s = {});
// (N,) int32: rows by batch, then along the curve; stable. Right for every coordinate of either
// dtype.
mx::array morton_order(const CoordsLike& coords, mx::StreamOrDevice s = {});
mx::array hilbert_order(const CoordsLike& coords, mx::StreamOrDevice s = {});
CoordinateOrdering morton_sort_coords(const CoordsLike& coords, mx::StreamOrDevice s = {});

// Parents floor(c / 2), first seen first, with the mask of their children.
SparseOccupancy occupancy_downsample(const CoordsLike& coords, mx::StreamOrDevice s = {});
// Children of each parent in ascending bit; occupancy (P,) uint8.
OccupancyExpansion occupancy_expand(const CoordsLike& coords, const mx::array& occupancy,
                                    mx::StreamOrDevice s = {});
// 2 * parent + bits of the index: row m is child child_indices[m], 0..7, of coords[parent_rows[m]].
mx::array child_coords_from_indices(const CoordsLike& coords, const mx::array& parent_rows,
                                    const mx::array& child_indices, mx::StreamOrDevice s = {});

}  // namespace lattice
