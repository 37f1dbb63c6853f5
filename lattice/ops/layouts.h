/// @file
/// Layouts of attention, and the way of features between rows and slots; pooling of blocks of cells
/// into one row, and back (core/layouts.h).
///
///     to_slots:    y[p] = x[rows[p]]            (N, C) -> (S, C), or `parts` arrays (S, C / parts)
///     to_rows:     x[r] = y[slots[r]]           (S, C) -> (N, C)
///     grid_pool:   y[b] = max, mean or sum over the rows of block b
///     grid_unpool: x[r] = y[cluster[r]]
///
/// Layouts and poolings of a tensor are kept by its manager: equal arguments give the same object.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <variant>
#include <vector>

#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/coords.h"

namespace lattice {

/// What a layout is made from: a tensor, whose manager keeps the layout, or coordinates.
using LayoutSource = std::variant<SparseTensor, CoordsLike>;

/// (N,) int64 codes; depth: bits per axis, at least those of the coordinates, default exactly
/// those.
LATTICE_API mx::array curve_codes(const CoordsLike& coords, Curve curve,
                                  std::optional<int64_t> depth = {});
/// The rows sorted stably by ascending code: the sorted coordinates, the order and its inverse.
LATTICE_API CoordinateOrdering curve_sort_coords(const CoordsLike& coords, Curve curve,
                                                 std::optional<int64_t> depth = {});

/// Patches of `size` rows along a curve; shrink: at most the rows of the smallest cloud; depth: as
/// in curve_codes.
LATTICE_API AttentionLayout::Ptr attention_patches(const LayoutSource& x, int64_t size,
                                                   Curve curve = Curve::z, bool shrink = false,
                                                   std::optional<int64_t> depth = {});
/// Windows of `size` cells, whose borders lie at multiples of size minus shift; 0: the whole axis.
LATTICE_API AttentionLayout::Ptr attention_windows(const LayoutSource& x, const Triple& size,
                                                   const Triple& shift = {0, 0, 0});

/// Features (N, C) of each slot: `parts` arrays (slots, C / parts).
LATTICE_API std::vector<mx::array> to_slots(const mx::array& feats,
                                            const AttentionLayout::Ptr& layout, int64_t parts = 1,
                                            mx::StreamOrDevice s = {});
/// The result (N, C) of each row from those of the slots (slots, C).
LATTICE_API mx::array to_rows(const mx::array& feats, const AttentionLayout::Ptr& layout,
                              mx::StreamOrDevice s = {});

/// Blocks of stride^3 cells of x, sorted along the curve, where stride is a power of two; or
/// without a curve by batch, x, y and z, with any stride. depth: of the curve, as in curve_codes.
LATTICE_API GridPooling::Ptr grid_pooling(const SparseTensor& x, int64_t stride = 2,
                                          std::optional<Curve> curve = Curve::z,
                                          std::optional<int64_t> depth = {});
/// x lies on pooling.in; the result on pooling.out.
LATTICE_API SparseTensor grid_pool(const SparseTensor& x, const GridPooling::Ptr& pooling,
                                   Reduction mode = Reduction::max, mx::StreamOrDevice s = {});
/// feats (coarse rows, C) -> (fine rows, C).
LATTICE_API mx::array grid_unpool(const mx::array& feats, const GridPooling::Ptr& pooling,
                                  mx::StreamOrDevice s = {});

}  // namespace lattice
