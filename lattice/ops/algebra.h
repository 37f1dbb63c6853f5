/// @file
/// Operations on sparse tensors as sets of rows: joins by coordinate, element-wise operations,
/// concatenation, selection, collation.
///
///     join:    inner: coordinates of both, lhs order; left: those of lhs; right: those of rhs;
///              outer: lhs, then the coordinates that only rhs has
///     binary:  y[c] = op(lhs[c] or lhs_fill, rhs[c] or rhs_fill)
///
/// Tensors that share their identity are combined row by row without any look-up. Otherwise
/// coordinates are aligned by value. A result with exactly the rows of one side keeps the identity
/// of that side; other results get a key of the manager of lhs. Strides, feature and coordinate
/// dtypes must be equal. Geometry is computed here, features stay lazy and differentiable.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <vector>

#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/relations.h"

namespace lattice {

/// What sparse_binary does with two values.
enum class BinaryOp { add, sub, mul, maximum, minimum };
/// The operation of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API BinaryOp parse_binary(std::string_view name, std::string_view operation);

/// The join of two tensors by coordinate: which rows of lhs and rhs meet. Throws
/// std::invalid_argument when strides or dtypes differ or a coordinate occurs twice.
LATTICE_API SparseAlignment align_sparse(const SparseTensor& lhs, const SparseTensor& rhs,
                                         Join join, mx::StreamOrDevice s = {});
/// How often coordinates were aligned by value in this process: shared identities never are.
LATTICE_API int64_t alignment_count();

/// out[j] = feats[rows[j]]; fill where rows[j] < 0. rows >= N throw.
LATTICE_API mx::array gather_aligned_features(const mx::array& feats, const mx::array& rows,
                                              float fill = 0, mx::StreamOrDevice s = {});
/// x's features at the target's coordinates; fill where x has no row.
LATTICE_API SparseTensor reindex_sparse(const SparseTensor& x, const TargetCoords& target,
                                        float fill = 0, mx::StreamOrDevice s = {});

/// The values that replace a row that one side lacks.
struct Fills {
  float lhs = 0;  ///< where lhs has no row
  float rhs = 0;  ///< where rhs has no row
};
/// y[c] = op(lhs[c], rhs[c]) on the coordinates of the join; both have C channels.
LATTICE_API SparseTensor sparse_binary(const SparseTensor& lhs, const SparseTensor& rhs,
                                       BinaryOp op, Join join, const Fills& fills = {},
                                       mx::StreamOrDevice s = {});

/// The rows of lhs that rhs has too, with lhs's features.
LATTICE_API SparseTensor sparse_intersection(const SparseTensor& lhs, const SparseTensor& rhs,
                                             mx::StreamOrDevice s = {});

/// Channels side by side. Rows that a tensor lacks are 0 (outer, left, right).
LATTICE_API SparseTensor cat(const std::vector<SparseTensor>& tensors, Join join = Join::inner,
                             mx::StreamOrDevice s = {});
/// The same for two tensors, with given fill values.
LATTICE_API SparseTensor sparse_cat_aligned(const SparseTensor& lhs, const SparseTensor& rhs,
                                            Join join, const Fills& fills = {},
                                            mx::StreamOrDevice s = {});

/// Rows by number, (M,) integers, in that order.
LATTICE_API SparseTensor prune(const SparseTensor& x, const mx::array& rows,
                               mx::StreamOrDevice s = {});
/// Rows where the mask, (N,) booleans, is true.
LATTICE_API SparseTensor prune_mask(const SparseTensor& x, const mx::array& mask,
                                    mx::StreamOrDevice s = {});
/// (K,) int32: the rows where the mask, (N,) booleans, is true, ascending. The mask is evaluated.
LATTICE_API mx::array rows_where(const mx::array& mask);
/// Rows with min_coord <= c <= max_coord on each axis.
LATTICE_API SparseTensor crop(const SparseTensor& x, const Triple& min_coord,
                              const Triple& max_coord, mx::StreamOrDevice s = {});
/// Ascending rows: of batch item b the min(n_b, floor(rho * counts[b])) with the largest channel 0;
/// equal values by row, NaN last.
LATTICE_API mx::array topk_rows(const SparseTensor& x, const std::vector<int64_t>& counts,
                                double rho = 1.0);

/// Merges rows of equal coordinates, in the order of first appearance. `none` leaves the rows as
/// they are.
enum class Duplicates { none, first, sum, mean, max };
/// The choice of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API Duplicates parse_duplicates(std::string_view name, std::string_view operation);
/// The tensor of coords (N, 4) and feats (N, C), with duplicates merged as asked.
LATTICE_API SparseTensor sparse_from_coordinates(
    const mx::array& coords, const mx::array& feats, const Triple& stride = {1, 1, 1},
    const std::optional<BatchCounts>& batch_counts = std::nullopt,
    Duplicates duplicates = Duplicates::none, mx::StreamOrDevice s = {});
/// Items of (n, 3) coordinates and (n, C) features: item b becomes batch b; batch_counts are set.
LATTICE_API SparseTensor sparse_collate(const std::vector<mx::array>& coords,
                                        const std::vector<mx::array>& feats,
                                        const Triple& stride = {1, 1, 1},
                                        Duplicates duplicates = Duplicates::none,
                                        mx::StreamOrDevice s = {});

}  // namespace lattice
