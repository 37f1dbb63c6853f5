/// @file
/// Operations on coordinate sets by value. Rows are (batch, x, y, z), int32 or int64, used together
/// only with equal dtype.
///
/// Results are concrete: values are computed when the function is called, and arrays have exactly
/// the rows that they need. The CPU computes them, because memory is shared, unless a route of
/// Metal is forced (ops/geometry.h). Orders are stated, and do not depend on the number of threads.
/// Errors: std::invalid_argument for shapes, dtypes and row numbers, std::overflow_error where a
/// result leaves its type.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <variant>

#include "lattice/core/coordinate_manager.h"
#include "lattice/core/coordinate_set.h"
#include "lattice/core/names.h"

namespace lattice {

/// coords[p] = given[order[p]] and given[r] = coords[inverse_rows[r]].
struct CoordinateOrdering {
  mx::array coords;        ///< (N, 4)
  mx::array order;         ///< (N,) int32
  mx::array inverse_rows;  ///< (N,) int32
};

/// Row i joins lhs row lhs_rows[i] and rhs row rhs_rows[i], -1 where that side has none.
struct SparseAlignment {
  mx::array coords;       ///< (M, 4)
  mx::array active_rows;  ///< (1,) int32: M
  mx::array lhs_rows;     ///< (M,) int32
  mx::array rhs_rows;     ///< (M,) int32
};

/// Parents floor(c / 2) of N rows: bit (x & 1) + 2 (y & 1) + 4 (z & 1) of a parent's occupancy is
/// set where it has that child.
struct SparseOccupancy {
  mx::array coords;         ///< (P, 4), first seen first
  mx::array active_rows;    ///< (1,) int32: P
  mx::array occupancy;      ///< (P,) uint8
  mx::array parent_rows;    ///< (N,) int32
  mx::array child_indices;  ///< (N,) int32: the bit of each row
};

/// Children of P parents, in the order of their parents and then of their bits.
struct OccupancyExpansion {
  mx::array coords;         ///< (M, 4)
  mx::array active_rows;    ///< (1,) int32: M
  mx::array parent_rows;    ///< (M,) int32
  mx::array child_indices;  ///< (M,) int32
};

/// An array, or a CoordinateSet, which sorts its rows once for all calls.
class LATTICE_API CoordsLike {
 public:
  /// Coordinates (N, 4).
  CoordsLike(mx::array coords) : value_(std::move(coords)) {}  // NOLINT: implicit on purpose
  /// Coordinates that were checked before.
  CoordsLike(CoordinateSet coords) : value_(std::move(coords)) {}  // NOLINT: implicit on purpose
  /// The checked coordinates; `what` names the argument in messages.
  CoordinateSet set(std::string_view operation, std::string_view what = "coords") const;

 private:
  std::variant<mx::array, CoordinateSet> value_;
};

/// Distinct floor(c / stride), first seen first. stride >= 1.
LATTICE_API mx::array downsample_coords(const CoordsLike& coords, const Triple& stride = {2, 2, 2},
                                        mx::StreamOrDevice s = {});

/// Distinct rows of lhs or rhs, first seen first, lhs before rhs.
LATTICE_API mx::array union_coords(const CoordsLike& lhs, const CoordsLike& rhs,
                                   mx::StreamOrDevice s = {});
/// Distinct rows of lhs that rhs has too, first seen first.
LATTICE_API mx::array intersection_coords(const CoordsLike& lhs, const CoordsLike& rhs,
                                          mx::StreamOrDevice s = {});
/// Distinct rows of lhs that rhs has not, first seen first.
LATTICE_API mx::array difference_coords(const CoordsLike& lhs, const CoordsLike& rhs,
                                        mx::StreamOrDevice s = {});

/// (Q,) int32: the first row of coords that equals the query, or -1. contains: the same as bool.
LATTICE_API mx::array lookup_coords(const CoordsLike& coords, const CoordsLike& queries,
                                    mx::StreamOrDevice s = {});
/// (Q,) bool: whether some row of coords equals the query.
LATTICE_API mx::array contains_coords(const CoordsLike& coords, const CoordsLike& queries,
                                      mx::StreamOrDevice s = {});
/// For each target row the first equal source row, or -1.
LATTICE_API mx::array inverse_map(const CoordsLike& source, const CoordsLike& target,
                                  mx::StreamOrDevice s = {});
/// For each row of the target set the row of the source set that holds it, or -1. At equal strides
/// that row has equal coordinates. Where the source's stride is a multiple of the target's, the row
/// has floor(target / ratio).
LATTICE_API mx::array inverse_map_in(const CoordinateManager& manager,
                                     const CoordinateMapKey& source, const CoordinateMapKey& target,
                                     mx::StreamOrDevice s = {});

/// Joins two sets without duplicates. `*_active`: (1,) int32, rows behind that number do not take
/// part; none: all do. Order of inner and left: lhs; right: rhs order; outer: lhs, then the rhs
/// rows without partner.
LATTICE_API SparseAlignment build_sparse_alignment(const CoordsLike& lhs,
                                                   const std::optional<mx::array>& lhs_active,
                                                   const CoordsLike& rhs,
                                                   const std::optional<mx::array>& rhs_active,
                                                   Join join, mx::StreamOrDevice s = {});
/// "inner", "left", "right" or "outer".
LATTICE_API Join parse_join(std::string_view name, std::string_view operation);

/// (N,) int64: batch << 60 | interleaved bits, x lowest. x, y, z in 0..2^20-1, batch in 0..7, else
/// std::overflow_error.
LATTICE_API mx::array morton_codes(const CoordsLike& coords, mx::StreamOrDevice s = {});
/// (N,) int32: rows by batch, then along the curve; stable. Right for every coordinate of either
/// dtype.
LATTICE_API mx::array morton_order(const CoordsLike& coords, mx::StreamOrDevice s = {});
/// The same along Hilbert's curve.
LATTICE_API mx::array hilbert_order(const CoordsLike& coords, mx::StreamOrDevice s = {});
/// The coordinates in the order of morton_order, with the order and its inverse.
LATTICE_API CoordinateOrdering morton_sort_coords(const CoordsLike& coords,
                                                  mx::StreamOrDevice s = {});

/// Parents floor(c / 2), first seen first, with the mask of their children.
LATTICE_API SparseOccupancy occupancy_downsample(const CoordsLike& coords,
                                                 mx::StreamOrDevice s = {});
/// Children of each parent in ascending bit; occupancy (P,) uint8.
LATTICE_API OccupancyExpansion occupancy_expand(const CoordsLike& coords,
                                                const mx::array& occupancy,
                                                mx::StreamOrDevice s = {});
/// 2 * parent + bits of the index: row m is child child_indices[m], 0..7, of
/// coords[parent_rows[m]].
LATTICE_API mx::array child_coords_from_indices(const CoordsLike& coords,
                                                const mx::array& parent_rows,
                                                const mx::array& child_indices,
                                                mx::StreamOrDevice s = {});

}  // namespace lattice
