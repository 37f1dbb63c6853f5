#include "lattice/ops/neighbors.h"

#include <stdexcept>

#include "lattice/ops/map_rows.h"

namespace lattice {
namespace {

NeighborIndex index_of(const NeighborRows& rows, const char* operation) {
  return NeighborIndex(rows.source, rows.batch_indices, operation, "source_coords");
}

NeighborRows rows_of(const SparseTensor& source, const std::optional<SparseTensor>& query, const char* operation) {
  NeighborRows rows{source.coords(), std::nullopt, std::nullopt, std::nullopt};
  if (!query) return rows;
  if (query->stride() != source.stride())
    throw std::invalid_argument("[" + std::string(operation) + "] source and query must have equal strides, got " +
                                triple_text(source.stride()) + " and " + triple_text(query->stride()));
  rows.query = query->coords();
  return rows;
}

}  // namespace

NeighborRelation::Ptr build_knn_relation(const NeighborRows& rows, int64_t k, mx::StreamOrDevice) {
  constexpr const char* kOperation = "build_knn_relation";
  return index_of(rows, kOperation).knn(k, rows.query, rows.query_batch_indices, kOperation);
}

NeighborRelation::Ptr build_radius_relation(const NeighborRows& rows, float radius,
                                            std::optional<int64_t> max_neighbors, mx::StreamOrDevice) {
  constexpr const char* kOperation = "build_radius_relation";
  return index_of(rows, kOperation).radius(radius, max_neighbors, rows.query, rows.query_batch_indices, kOperation);
}

NeighborRelation::Ptr knn_relation(const SparseTensor& source, const std::optional<SparseTensor>& query, int64_t k,
                                   mx::StreamOrDevice) {
  const NeighborRows rows = rows_of(source, query, "knn_relation");
  return index_of(rows, "knn_relation").knn(k, rows.query, std::nullopt, "knn_relation");
}

NeighborRelation::Ptr radius_relation(const SparseTensor& source, const std::optional<SparseTensor>& query,
                                      float radius, std::optional<int64_t> max_neighbors, mx::StreamOrDevice) {
  const NeighborRows rows = rows_of(source, query, "radius_relation");
  return index_of(rows, "radius_relation").radius(radius, max_neighbors, rows.query, std::nullopt, "radius_relation");
}

mx::array gather_neighbor_features(const mx::array& feats, const NeighborRelation& relation, mx::StreamOrDevice s) {
  return map_rows(feats, relation.sources(), "gather_neighbor_features", "source", s);
}

}  // namespace lattice
