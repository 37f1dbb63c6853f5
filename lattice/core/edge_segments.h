// Edges from sources to queries, as attention along edges reads them: by query, and by source.
#pragma once

#include "lattice/core/neighbors.h"
#include "lattice/core/relation.h"

namespace lattice {

// int32 arrays, evaluated. Edges of query i are offsets[i] .. offsets[i + 1]; edge e joins
// queries[e] and sources[e]. Edges of source j are back_edges[back_offsets[j] .. back_offsets[j +
// 1]]. `order` is the number that each edge has in the relation; none: the same.
struct EdgeSegments {
  int64_t n_queries = 0, n_sources = 0;
  mx::array offsets, queries, sources, back_offsets, back_edges;
  std::optional<mx::array> order = std::nullopt;
  int64_t n_edges() const { return static_cast<int64_t>(sources.size()); }
};

EdgeSegments edge_segments(const NeighborRelation& relation);
// Queries are output rows, sources are input rows.
EdgeSegments edge_segments(const Relation& relation);

}  // namespace lattice
