/// @file
/// Neighbors of rows: the relation, the index that finds it, and edges as attention reads them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/relation.h"
#include "lattice/core/row_map.h"

namespace lattice {

/// Edge e joins query row query_rows[e] and source row source_rows[e], its neighbor number
/// neighbor_ids[e].
struct NeighborEdges {
  mx::array query_rows;    ///< (E,) int32
  mx::array source_rows;   ///< (E,) int32
  mx::array neighbor_ids;  ///< (E,) int32: 0 is the nearest
};

/// Each query's neighbors, nearest first, ordered by (squared distance as float32, source row).
/// Immutable.
class LATTICE_API NeighborRelation {
 public:
  /// How relations are held.
  using Ptr = std::shared_ptr<const NeighborRelation>;
  /// @cond internal
  NeighborRelation(cpu::Neighbors found, int64_t n_source, std::optional<int64_t> max_neighbors);
  /// @endcond

  /// From given edges (E,) whose query rows ascend. neighbor_ids, if given, count the neighbors of
  /// each query; distances are 0 where they are not given. Throws std::invalid_argument.
  static std::shared_ptr<NeighborRelation> from_edges(
      const mx::array& query_rows, const mx::array& source_rows,
      const std::optional<mx::array>& neighbor_ids, const std::optional<mx::array>& distances,
      int64_t n_query, int64_t n_source, std::optional<int64_t> max_neighbors = std::nullopt);

  /// Rows that ask.
  int64_t n_query() const { return row_offsets_.shape(0) - 1; }
  /// Rows that are found.
  int64_t n_source() const { return n_source_; }
  /// E, neighbors of all queries together.
  int64_t edge_count() const { return static_cast<int64_t>(source_rows_.size()); }
  /// k, or the given limit; without a limit, the largest number of neighbors of any query.
  int64_t max_neighbors() const { return max_neighbors_; }
  /// Neighbors within the radius that the limit cut off.
  int64_t truncated() const { return truncated_; }
  const mx::array& row_offsets() const { return row_offsets_; }  ///< (n_query + 1,) int32
  const mx::array& source_rows() const { return source_rows_; }  ///< (E,) int32
  const mx::array& distances() const { return distances_; }      ///< (E,) float32, squared
  mx::array counts() const;                                      ///< (n_query,) int32
  const NeighborEdges& edges() const;                            ///< made on first use
  /// From source rows to edges: row e is source row source_rows[e].
  const RowMap::Ptr& sources() const { return sources_; }
  /// A description in one line.
  std::string text() const;

 private:
  mx::array row_offsets_, source_rows_, distances_;
  int64_t n_source_ = 0, max_neighbors_ = 0, truncated_ = 0;
  RowMap::Ptr sources_;
  mutable std::once_flag once_;
  mutable std::optional<NeighborEdges> edges_;
};

/// The rows to search among and the rows that search. Only float points have separate batches.
/// Without `query` the sources search among themselves.
struct NeighborRows {
  mx::array source;                              ///< (N, 4) coordinates or (N, 3) points
  std::optional<mx::array> query;                ///< (Q, 4) or (Q, 3)
  std::optional<mx::array> batch_indices;        ///< (N,): of the points
  std::optional<mx::array> query_batch_indices;  ///< (Q,): of the queries
};

/// @cond internal
/// Rows in the form that a GPU reads, (N, 4) int32 or int64: coordinates, or for points the batch
/// and the bits of x, y and z. The checks are those of NeighborIndex.
mx::array neighbor_rows(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                        std::string_view operation, std::string_view what);
/// The checked parameters of knn and radius.
cpu::NeighborQuery knn_query(int64_t k, std::string_view operation);
cpu::NeighborQuery radius_query(float radius, std::optional<int64_t> max_neighbors,
                                std::string_view operation);
/// @endcond

/// Rows that neighbors are looked for among: integer coordinates (N, 4), or float points (N, 3)
/// with batch_indices. Built once, in parallel; queries of any number, from any thread.
class LATTICE_API NeighborIndex {
 public:
  /// Throws std::invalid_argument; a point that is not finite is named by its row. `what` names the
  /// rows in messages.
  NeighborIndex(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                std::string_view operation = "NeighborIndex", std::string_view what = "coords");

  /// The k nearest rows of the same batch, fewer where it has fewer; k >= 1. No queries: the rows
  /// themselves.
  NeighborRelation::Ptr knn(int64_t k, const std::optional<mx::array>& queries = std::nullopt,
                            const std::optional<mx::array>& batch_indices = std::nullopt,
                            std::string_view operation = "NeighborIndex.knn") const;
  /// All rows with sqrt(d2) <= radius in float32, as radius_search; radius >= 0. max_neighbors >= 1
  /// keeps the nearest.
  NeighborRelation::Ptr radius(float radius, std::optional<int64_t> max_neighbors,
                               const std::optional<mx::array>& queries = std::nullopt,
                               const std::optional<mx::array>& batch_indices = std::nullopt,
                               std::string_view operation = "NeighborIndex.radius") const;
  /// @cond internal
  /// Either, with what was checked.
  NeighborRelation::Ptr search(const cpu::NeighborQuery& query,
                               std::optional<int64_t> max_neighbors,
                               const std::optional<mx::array>& queries,
                               const std::optional<mx::array>& batch_indices,
                               std::string_view operation) const;
  /// @endcond
  /// Rows that can be found.
  int64_t rows() const;
  /// A description in one line.
  std::string text() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Edges from sources to queries, as attention along edges reads them: by query, and by source.
///
/// int32 arrays, evaluated. Edges of query i are offsets[i] .. offsets[i + 1]; edge e joins
/// queries[e] and sources[e]. Edges of source j are back_edges[back_offsets[j] .. back_offsets[j +
/// 1]]. `order` is the number that each edge has in the relation; none: the same.
struct LATTICE_API EdgeSegments {
  int64_t n_queries = 0;                          ///< rows that ask
  int64_t n_sources = 0;                          ///< rows that answer
  mx::array offsets;                              ///< (n_queries + 1,)
  mx::array queries;                              ///< (E,)
  mx::array sources;                              ///< (E,)
  mx::array back_offsets;                         ///< (n_sources + 1,)
  mx::array back_edges;                           ///< (E,)
  std::optional<mx::array> order = std::nullopt;  ///< (E,), see above
  /// E.
  int64_t n_edges() const { return static_cast<int64_t>(sources.size()); }
};

/// The edges of neighbors: queries and sources are those of the relation.
LATTICE_API EdgeSegments edge_segments(const NeighborRelation& relation);
/// Queries are output rows, sources are input rows.
LATTICE_API EdgeSegments edge_segments(const Relation& relation);

}  // namespace lattice
