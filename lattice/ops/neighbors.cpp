#include "lattice/ops/neighbors.h"

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/ops/map_rows.h"
#include "lattice/routes/geometry.h"

namespace lattice {
namespace {

// Finds neighbors by the route that is chosen. `limit` is the value that the user gave.
NeighborRelation::Ptr search(const NeighborRows& rows, const cpu::NeighborQuery& query,
                             std::optional<int64_t> limit, const char* operation,
                             mx::StreamOrDevice s) {
  return routes::run(routes::neighbors_rows(), {rows, query, limit, operation, s});
}

NeighborRows rows_of(const SparseTensor& source, const std::optional<SparseTensor>& query,
                     const char* operation) {
  NeighborRows rows{source.coords(), std::nullopt, std::nullopt, std::nullopt};
  if (!query) return rows;
  if (query->stride() != source.stride())
    fail(operation, "source and query must have the same coordinate stride, got " +
                        triple_text(source.stride()) + " and " + triple_text(query->stride()));
  rows.query = query->coords();
  return rows;
}

}  // namespace

NeighborRelation::Ptr build_knn_relation(const NeighborRows& rows, int64_t k,
                                         mx::StreamOrDevice s) {
  constexpr const char* kOperation = "build_knn_relation";
  return search(rows, knn_query(k, kOperation), k, kOperation, s);
}

NeighborRelation::Ptr build_radius_relation(const NeighborRows& rows, float radius,
                                            std::optional<int64_t> max_neighbors,
                                            mx::StreamOrDevice s) {
  constexpr const char* kOperation = "build_radius_relation";
  return search(rows, radius_query(radius, max_neighbors, kOperation), max_neighbors, kOperation,
                s);
}

mx::array knn_graph(const mx::array& points, int64_t k, const mx::array& batch_indices,
                    mx::StreamOrDevice s) {
  const NeighborRelation::Ptr found =
      build_knn_relation({points, std::nullopt, batch_indices, std::nullopt}, k, s);
  const int64_t n = found->n_query();
  const int32_t* offsets = found->row_offsets().data<int32_t>();
  const int32_t* sources = found->source_rows().data<int32_t>();
  cpu::Buffer<int32_t> rows(n * k);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t rank = 0; rank < k; ++rank)
      rows[i * k + rank] = sources[offsets[i] + (rank < offsets[i + 1] - offsets[i] ? rank : 0)];
  return adopt(std::move(rows), {static_cast<int>(n), static_cast<int>(k)});
}

NeighborRelation::Ptr knn_relation(const SparseTensor& source,
                                   const std::optional<SparseTensor>& query, int64_t k,
                                   mx::StreamOrDevice s) {
  constexpr const char* kOperation = "knn_relation";
  return search(rows_of(source, query, kOperation), knn_query(k, kOperation), k, kOperation, s);
}

NeighborRelation::Ptr radius_relation(const SparseTensor& source,
                                      const std::optional<SparseTensor>& query, float radius,
                                      std::optional<int64_t> max_neighbors, mx::StreamOrDevice s) {
  constexpr const char* kOperation = "radius_relation";
  return search(rows_of(source, query, kOperation), radius_query(radius, max_neighbors, kOperation),
                max_neighbors, kOperation, s);
}

mx::array gather_neighbor_features(const mx::array& feats, const NeighborRelation& relation,
                                   mx::StreamOrDevice s) {
  return map_rows(feats, relation.sources(), "gather_neighbor_features", "source", s);
}

}  // namespace lattice
