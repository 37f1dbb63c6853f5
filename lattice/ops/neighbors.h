/// @file
/// Neighbors: the k nearest rows, or all rows within a radius, exact, of the same batch.
///
///     d2 = squared Euclidean distance as float32; edges of a query by (d2, source row); a query
///     that is a source finds itself
///
/// Rows are integer coordinates (N, 4), d2 exact and rounded once, or float points (N, 3) with
/// batches, d2 = (dx dx + dy dy) + dz dz in float32. Relations are concrete; on a GPU they take the
/// route of "neighbors". To ask the same rows again, keep a NeighborIndex.
#pragma once

#include <mlx/utils.h>

#include <optional>

#include "lattice/core/neighbors.h"
#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// The k nearest sources of each query, fewer where a batch has fewer. Throws
/// std::invalid_argument.
LATTICE_API NeighborRelation::Ptr build_knn_relation(const NeighborRows& rows, int64_t k,
                                                     mx::StreamOrDevice s = {});
/// All sources with sqrt(d2) <= radius, in float32, of each query, or the max_neighbors nearest of
/// them.
LATTICE_API NeighborRelation::Ptr build_radius_relation(
    const NeighborRows& rows, float radius, std::optional<int64_t> max_neighbors = std::nullopt,
    mx::StreamOrDevice s = {});
/// On tensors of equal stride; distances count lattice steps.
LATTICE_API NeighborRelation::Ptr knn_relation(const SparseTensor& source,
                                               const std::optional<SparseTensor>& query, int64_t k,
                                               mx::StreamOrDevice s = {});
/// The same for all rows within a radius.
LATTICE_API NeighborRelation::Ptr radius_relation(
    const SparseTensor& source, const std::optional<SparseTensor>& query, float radius,
    std::optional<int64_t> max_neighbors = std::nullopt, mx::StreamOrDevice s = {});

/// (N, k) int32: the k nearest points of each point (N, 3) in its own cloud, batch_indices (N,),
/// itself first. A cloud of fewer than k points repeats the first neighbor, so that a maximum over
/// the neighbors stays right.
LATTICE_API mx::array knn_graph(const mx::array& points, int64_t k, const mx::array& batch_indices,
                                mx::StreamOrDevice s = {});

/// (E, C): row e is feats[source_rows[e]]. Differentiable to any order; the derivative adds up in
/// float32 by ascending e.
LATTICE_API mx::array gather_neighbor_features(const mx::array& feats,
                                               const NeighborRelation& relation,
                                               mx::StreamOrDevice s = {});

}  // namespace lattice
