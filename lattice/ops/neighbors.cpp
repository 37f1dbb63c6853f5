#include "lattice/ops/neighbors.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/ops/geometry.h"
#include "lattice/ops/map_rows.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

// What geometry_routes.h says of "neighbors".
cpu::Neighbors neighbors_of(const mx::array& found, int64_t n_query) {
  const int32_t* at = found.data<int32_t>();
  cpu::Neighbors out;
  out.truncated = at[0] + (int64_t{at[1]} << 30);
  const int32_t* offsets = at + 2;
  const int64_t n = offsets[n_query];
  out.offsets = cpu::Buffer<int32_t>(n_query + 1);
  out.sources = cpu::Buffer<int32_t>(n);
  out.distances = cpu::Buffer<float>(n);
  std::copy_n(offsets, n_query + 1, out.offsets.begin());
  const int32_t* rows = offsets + n_query + 1;
  std::copy_n(rows, n, out.sources.begin());
  std::transform(rows + n, rows + 2 * n, out.distances.begin(),
                 [](int32_t bits) { return std::bit_cast<float>(bits); });
  return out;
}

// By the route that is chosen. `limit` is what the user gave.
NeighborRelation::Ptr search(const NeighborRows& rows, const cpu::NeighborQuery& query,
                             std::optional<int64_t> limit, const char* operation,
                             mx::StreamOrDevice s) {
  Geometry asked;
  asked.limit = query.limit;
  asked.reach = query.reach;
  asked.points = mx::issubdtype(rows.source.dtype(), mx::floating);
  Call call = geometry_call(Operation::neighbors, {rows.source, rows.query.value_or(rows.source)},
                            asked, s);
  const Route& route = *choose(call).chosen;
  if (route.code == Code::host) {
    route.count_run();
    const NeighborIndex index(rows.source, rows.batch_indices, operation, "source_coords");
    return index.search(query, limit, rows.query, rows.query_batch_indices, operation);
  }
  if (rows.query && mx::issubdtype(rows.query->dtype(), mx::floating) != asked.points)
    fail(operation, "source and query must both be integer coordinates or both be float points");
  call.inputs = {neighbor_rows(rows.source, rows.batch_indices, operation, "source_coords")};
  call.inputs.push_back(
      rows.query ? neighbor_rows(*rows.query, rows.query_batch_indices, operation, "query_coords")
                 : call.inputs[0]);
  mx::array found = route.launch(call, route)[0];
  found.eval();
  return std::make_shared<const NeighborRelation>(neighbors_of(found, call.inputs[1].shape(0)),
                                                  rows.source.shape(0), limit);
}

NeighborRows rows_of(const SparseTensor& source, const std::optional<SparseTensor>& query,
                     const char* operation) {
  NeighborRows rows{source.coords(), std::nullopt, std::nullopt, std::nullopt};
  if (!query) return rows;
  if (query->stride() != source.stride())
    fail(operation, "source and query must have equal strides, got " +
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
