// Neighbors: the k nearest rows, or all rows within a radius, exact, of the same batch.
//
//   d2 = squared Euclidean distance as float32; edges of a query by (d2, source row); a query that
//   is a source finds itself
//
// Rows are integer coordinates (N, 4), d2 exact and rounded once, or float points (N, 3) with
// batches, d2 = (dx dx + dy dy) + dz dz in float32. Relations are concrete; on a GPU they take the
// route of "neighbors". To ask the same rows again, keep a NeighborIndex.
#pragma once

#include <mlx/utils.h>

#include <optional>

#include "lattice/core/neighbors.h"
#include "lattice/core/sparse_tensor.h"

namespace lattice {

// Who asks whom; batches belong to float points only. No query: the sources themselves.
struct NeighborRows {
  mx::array source;
  std::optional<mx::array> query;
  std::optional<mx::array> batch_indices;
  std::optional<mx::array> query_batch_indices;
};

NeighborRelation::Ptr build_knn_relation(const NeighborRows& rows, int64_t k,
                                         mx::StreamOrDevice s = {});
NeighborRelation::Ptr build_radius_relation(const NeighborRows& rows, float radius,
                                            std::optional<int64_t> max_neighbors = std::nullopt,
                                            mx::StreamOrDevice s = {});
// On tensors of equal stride; distances count lattice steps.
NeighborRelation::Ptr knn_relation(const SparseTensor& source,
                                   const std::optional<SparseTensor>& query, int64_t k,
                                   mx::StreamOrDevice s = {});
NeighborRelation::Ptr radius_relation(const SparseTensor& source,
                                      const std::optional<SparseTensor>& query, float radius,
                                      std::optional<int64_t> max_neighbors = std::nullopt,
                                      mx::StreamOrDevice s = {});

// (E, C): row e is feats[source_rows[e]]. Differentiable to any order; the derivative adds up in
// float32 by ascending e.
mx::array gather_neighbor_features(const mx::array& feats, const NeighborRelation& relation,
                                   mx::StreamOrDevice s = {});

}  // namespace lattice
