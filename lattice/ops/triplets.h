/// @file
/// The two sums over triplets that point convolution is made of (PointCNN++, arXiv 2511.23227).
///
///     mvmr: y[r, g, m]    = sum over t with o_idx[t] == r of
///                           sum_c a[a_idx[t], g, c, m] b[b_idx[t], g, c]      (n_o, G, M)
///     vvor: u[r, g, m, c] = sum over t with o_idx[t] == r of
///                           a[a_idx[t], g, m] b[b_idx[t], g, c]               (n_o, G, M, C)
///
/// Triplets come in any order and may repeat. A row without triplets is 0. The operations are conv
/// and outer on the relation of the edges (b_idx, o_idx, a_idx). Where matrices have fewer than two
/// triplets each, matrices are streamed instead (kernels/cpu/features/per_edge.h). Dtypes are
/// promoted, never narrowed. Sums are float32 by ascending matrix, then given order, rounded once.
/// Index arrays are evaluated and checked here; the relation can be made once and used many times.
/// Differentiable to any order in a and b.
#pragma once

#include <mlx/utils.h>

#include <optional>

#include "lattice/core/relation.h"

namespace lattice {

/// Matrices are (N, G, C, M), as in the formulas, or (N, G, M, C).
enum class MatrixLayout { gcm, gmc };

/// Edges b_idx -> o_idx with offset a_idx, checked. Without a_idx triplet t has matrix t. Without
/// b_idx it has row t if b has as many rows as there are triplets, else row o_idx[t] if b has n_o
/// rows.
LATTICE_API Relation::Ptr triplet_relation(const std::optional<mx::array>& a_idx,
                                           const std::optional<mx::array>& b_idx,
                                           const mx::array& o_idx, int64_t n_a, int64_t n_b,
                                           int64_t n_o);

/// `triplets` has n_in = rows of b, n_out = n_o, n_kernels = rows of a.
LATTICE_API mx::array mvmr(const mx::array& a, const mx::array& b, const Relation::Ptr& triplets,
                           MatrixLayout layout = MatrixLayout::gcm, mx::StreamOrDevice s = {});
/// The same with the relation made here; see triplet_relation for what may be left out.
LATTICE_API mx::array mvmr(const mx::array& a, const std::optional<mx::array>& a_idx,
                           const mx::array& b, const std::optional<mx::array>& b_idx,
                           const mx::array& o_idx, int64_t n_o,
                           MatrixLayout layout = MatrixLayout::gcm, mx::StreamOrDevice s = {});

/// `triplets` has n_in = rows of a, n_out = rows of b, n_kernels = n_o.
LATTICE_API mx::array vvor(const mx::array& a, const mx::array& b, const Relation::Ptr& triplets,
                           mx::StreamOrDevice s = {});
/// The same with the relation made here.
LATTICE_API mx::array vvor(const mx::array& a, const mx::array& a_idx, const mx::array& b,
                           const mx::array& b_idx, const mx::array& o_idx, int64_t n_o,
                           mx::StreamOrDevice s = {});

/// Point convolution: y = mvmr of weight (K, G, C_in / G, C_out / G) on the rows x (n_in, C_in),
/// plus bias (C_out,).
LATTICE_API mx::array point_conv(const mx::array& x, const mx::array& weight,
                                 const Relation::Ptr& relation,
                                 const std::optional<mx::array>& bias = std::nullopt,
                                 mx::StreamOrDevice s = {});

}  // namespace lattice
