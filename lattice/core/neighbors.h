// Neighbors of rows: the relation, and the index that finds it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/row_map.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"

namespace lattice {

// Edge e joins query row query_rows[e] and source row source_rows[e], its neighbor number
// neighbor_ids[e].
struct NeighborEdges {
  mx::array query_rows, source_rows, neighbor_ids;
};

// Each query's neighbors, nearest first, ordered by (squared distance as float32, source row).
// Immutable.
class NeighborRelation {
 public:
  using Ptr = std::shared_ptr<const NeighborRelation>;
  NeighborRelation(cpu::Neighbors found, int64_t n_source, std::optional<int64_t> max_neighbors);

  int64_t n_query() const { return row_offsets_.shape(0) - 1; }
  int64_t n_source() const { return n_source_; }
  int64_t edge_count() const { return static_cast<int64_t>(source_rows_.size()); }
  // k, or the given limit; without one the most neighbors of any query.
  int64_t max_neighbors() const { return max_neighbors_; }
  // Neighbors within the radius that the limit cut off.
  int64_t truncated() const { return truncated_; }
  const mx::array& row_offsets() const { return row_offsets_; }  // (n_query + 1,) int32
  const mx::array& source_rows() const { return source_rows_; }  // (E,) int32
  const mx::array& distances() const { return distances_; }      // (E,) float32, squared
  mx::array counts() const;                                      // (n_query,) int32
  const NeighborEdges& edges() const;                            // made on first use
  // From source rows to edges: row e is source row source_rows[e].
  const RowMap::Ptr& sources() const { return sources_; }
  std::string text() const;

 private:
  mx::array row_offsets_, source_rows_, distances_;
  int64_t n_source_ = 0, max_neighbors_ = 0, truncated_ = 0;
  RowMap::Ptr sources_;
  mutable std::once_flag once_;
  mutable std::optional<NeighborEdges> edges_;
};

// Rows as a GPU reads them, (N, 4) int32 or int64: coordinates; of points the batch and the bits of
// x, y, z. Checked as NeighborIndex does.
mx::array neighbor_rows(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                        std::string_view operation, std::string_view what);
// What knn and radius ask for, checked.
cpu::NeighborQuery knn_query(int64_t k, std::string_view operation);
cpu::NeighborQuery radius_query(float radius, std::optional<int64_t> max_neighbors,
                                std::string_view operation);

// Rows that neighbors are looked for among: integer coordinates (N, 4), or float points (N, 3) with
// batch_indices. Built once, in parallel; queries of any number, from any thread.
class NeighborIndex {
 public:
  // Throws std::invalid_argument; a point that is not finite is named by its row. `what` names the
  // rows in messages.
  NeighborIndex(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                std::string_view operation = "NeighborIndex", std::string_view what = "coords");

  // The k nearest rows of the same batch, fewer where it has fewer; k >= 1. No queries: the rows
  // themselves.
  NeighborRelation::Ptr knn(int64_t k, const std::optional<mx::array>& queries = std::nullopt,
                            const std::optional<mx::array>& batch_indices = std::nullopt,
                            std::string_view operation = "NeighborIndex.knn") const;
  // All rows with d2 <= radius * radius in float32; radius >= 0. max_neighbors >= 1 keeps the
  // nearest.
  NeighborRelation::Ptr radius(float radius, std::optional<int64_t> max_neighbors,
                               const std::optional<mx::array>& queries = std::nullopt,
                               const std::optional<mx::array>& batch_indices = std::nullopt,
                               std::string_view operation = "NeighborIndex.radius") const;
  // Either, with what was checked.
  NeighborRelation::Ptr search(const cpu::NeighborQuery& query,
                               std::optional<int64_t> max_neighbors,
                               const std::optional<mx::array>& queries,
                               const std::optional<mx::array>& batch_indices,
                               std::string_view operation) const;
  int64_t rows() const;
  std::string text() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace lattice
