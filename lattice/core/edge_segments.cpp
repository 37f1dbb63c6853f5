#include "lattice/core/edge_segments.h"

#include <utility>

namespace lattice {

EdgeSegments edge_segments(const NeighborRelation& relation) {
  const RowMap::Ptr back = relation.sources()->transposed();
  return {relation.n_query(),          relation.n_source(),    relation.row_offsets(),
          relation.edges().query_rows, relation.source_rows(), *back->parts().offsets,
          back->parts().rows};
}

EdgeSegments edge_segments(const Relation& relation) {
  const Edges& edges = relation.edges();
  const EdgeGroups &by_output = relation.output_csr(), &by_input = relation.input_csr();
  EdgeSegments found{relation.n_out(), relation.n_in(),      by_output.row_offsets, edges.out_rows,
                     edges.in_rows,    by_input.row_offsets, by_input.edge_ids};
  if (relation.edges_by_output() || relation.edge_count() == 0) return found;
  const int64_t n = relation.edge_count();
  const int32_t* order = by_output.edge_ids.data<int32_t>();
  cpu::Buffer<int32_t> queries(n), sources(n), place(n), back(n);
  for (int64_t e = 0; e < n; ++e) {
    queries[e] = edges.out_rows.data<int32_t>()[order[e]];
    sources[e] = edges.in_rows.data<int32_t>()[order[e]];
    place[order[e]] = static_cast<int32_t>(e);
  }
  for (int64_t e = 0; e < n; ++e) back[e] = place[by_input.edge_ids.data<int32_t>()[e]];
  const int count = static_cast<int>(n);
  found.queries = adopt(std::move(queries), {count});
  found.sources = adopt(std::move(sources), {count});
  found.back_edges = adopt(std::move(back), {count});
  found.order = by_output.edge_ids;
  return found;
}

}  // namespace lattice
