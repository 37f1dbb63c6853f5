#include "lattice/core/neighbors.h"

#include <mlx/ops.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"

namespace lattice {
namespace {

using cpu::Buffer;

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

// Rows as the kernel reads them, with the memory they live in.
struct Rows {
  std::optional<CoordinateSet> set;
  std::optional<mx::array> points, batches;
  cpu::Places places;
};

Rows checked(const mx::array& rows, const std::optional<mx::array>& batch_indices,
             std::string_view operation, std::string_view what) {
  Rows out;
  if (mx::issubdtype(rows.dtype(), mx::integer)) {
    if (batch_indices)
      fail(operation, "batch_indices must come with float points; column 0 of " +
                          std::string(what) + " is the batch");
    out.set.emplace(rows, operation, what);
    out.places.coords = out.set->span();
    out.places.n = out.set->rows();
    return out;
  }
  if (rows.ndim() != 2 || rows.shape(1) != 3)
    fail(operation, std::string(what) +
                        " must be integers of shape (N, 4) or floats of shape (N, 3), got " +
                        graph::dtype_name(rows.dtype()) + " of shape " + shape_text(rows.shape()));
  if (!is_float(rows.dtype()))
    fail(operation, std::string(what) + " must be integers, float32, float16 or bfloat16, got " +
                        graph::dtype_name(rows.dtype()));
  const int64_t n = rows.shape(0);
  out.points = evaluated(mx::astype(rows, mx::float32, mx::Device::cpu), operation, what);
  static const float kNone = 0;
  const float* p = n ? out.points->data<float>() : &kNone;
  for (int64_t i = 0; i < n * 3; ++i)
    if (!std::isfinite(p[i]))
      fail(operation, std::string(what) + " must be finite, got " + std::to_string(p[i]) +
                          " in row " + std::to_string(i / 3));
  if (batch_indices) {
    if (batch_indices->ndim() != 1 || batch_indices->shape(0) != n)
      fail(operation, "batch_indices must have shape (" + std::to_string(n) + ",), got " +
                          shape_text(batch_indices->shape()));
    out.batches = checked_rows(*batch_indices, kMaxRows, operation, "batch_indices");
  }
  out.places = {n, p, out.batches && n ? out.batches->data<int32_t>() : nullptr, {}};
  return out;
}

int64_t most(const Buffer<int32_t>& offsets) {
  int32_t found = 0;
  for (int64_t q = 0; q + 1 < offsets.size(); ++q)
    found = std::max(found, offsets[q + 1] - offsets[q]);
  return found;
}

}  // namespace

NeighborRelation::NeighborRelation(cpu::Neighbors found, int64_t n_source,
                                   std::optional<int64_t> max_neighbors)
    : row_offsets_(mx::array(0)),
      source_rows_(adopt(std::move(found.sources))),
      distances_(adopt(std::move(found.distances))),
      n_source_(n_source),
      max_neighbors_(max_neighbors ? *max_neighbors : most(found.offsets)),
      truncated_(found.truncated),
      sources_(RowMap::make({n_source, static_cast<int64_t>(source_rows_.size()), source_rows_,
                             std::nullopt, std::nullopt})) {
  row_offsets_ = adopt(std::move(found.offsets));
}

std::shared_ptr<NeighborRelation> NeighborRelation::from_edges(
    const mx::array& query_rows, const mx::array& source_rows,
    const std::optional<mx::array>& neighbor_ids, const std::optional<mx::array>& distances,
    int64_t n_query, int64_t n_source, std::optional<int64_t> max_neighbors) {
  constexpr const char* name = "NeighborRelation";
  if (n_query < 0 || n_source < 0 || n_query >= kMaxRows || n_source >= kMaxRows)
    fail(name, "n_query and n_source must be in 0..2^31-2");
  const mx::array q = checked_rows(query_rows, n_query, name, "query_rows"),
                  r = checked_rows(source_rows, n_source, name, "source_rows");
  const auto n = static_cast<int64_t>(q.size());
  if (r.size() != q.size() || (distances && distances->shape() != q.shape()) ||
      (neighbor_ids && neighbor_ids->shape() != q.shape()))
    fail(name,
         "query_rows, source_rows, neighbor_ids and distances must have one "
         "length");
  cpu::Neighbors found;
  found.offsets = Buffer<int32_t>(n_query + 1);
  found.sources = Buffer<int32_t>(n);
  found.distances = Buffer<float>(n);
  std::fill(found.offsets.begin(), found.offsets.end(), 0);
  std::fill(found.distances.begin(), found.distances.end(), 0.0f);
  const int32_t* rows = n ? q.data<int32_t>() : nullptr;
  if (!std::is_sorted(rows, rows + n)) fail(name, "query_rows must ascend");
  for (int64_t e = 0; e < n; ++e) ++found.offsets[rows[e] + 1];
  for (int64_t i = 0; i < n_query; ++i) found.offsets[i + 1] += found.offsets[i];
  if (n && neighbor_ids) {
    const mx::array given = checked_rows(*neighbor_ids, n, name, "neighbor_ids");
    for (int64_t e = 0; e < n; ++e)
      if (given.data<int32_t>()[e] != e - found.offsets[rows[e]])
        fail(name, "neighbor_ids[" + std::to_string(e) + "] must be the rank of the neighbor, " +
                       std::to_string(e - found.offsets[rows[e]]));
  }
  if (n) std::copy_n(r.data<int32_t>(), n, found.sources.begin());
  if (n && distances) {
    const mx::array given = evaluated(mx::astype(*distances, mx::float32), name, "distances");
    std::copy_n(given.data<float>(), n, found.distances.begin());
  }
  return std::make_shared<NeighborRelation>(std::move(found), n_source, max_neighbors);
}

mx::array NeighborRelation::counts() const {
  Buffer<int32_t> out(n_query());
  const int32_t* offsets = row_offsets_.data<int32_t>();
  for (int64_t q = 0; q < n_query(); ++q) out[q] = offsets[q + 1] - offsets[q];
  return adopt(std::move(out));
}

const NeighborEdges& NeighborRelation::edges() const {
  std::call_once(once_, [&] {
    Buffer<int32_t> query_rows(edge_count()), ids(edge_count());
    const int32_t* offsets = row_offsets_.data<int32_t>();
    cpu::each_piece(n_query(), [&](size_t, int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q)
        for (int64_t e = offsets[q]; e < offsets[q + 1]; ++e) {
          query_rows[e] = static_cast<int32_t>(q);
          ids[e] = static_cast<int32_t>(e - offsets[q]);
        }
    });
    edges_.emplace(
        NeighborEdges{adopt(std::move(query_rows)), source_rows_, adopt(std::move(ids))});
  });
  return *edges_;
}

std::string NeighborRelation::text() const {
  return "NeighborRelation(" + std::to_string(n_query()) + " queries, " +
         std::to_string(n_source_) + " sources, " + std::to_string(edge_count()) + " edges" +
         (truncated_ ? ", " + std::to_string(truncated_) + " truncated" : std::string()) + ")";
}

mx::array neighbor_rows(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                        std::string_view operation, std::string_view what) {
  const Rows found = checked(rows, batch_indices, operation, what);
  if (found.set) return found.set->array();
  const cpu::Places& p = found.places;
  Buffer<int32_t> packed(p.n * 4);
  for (int64_t i = 0; i < p.n; ++i) {
    packed[i * 4] = p.batch ? p.batch[i] : 0;
    for (int64_t a = 0; a < 3; ++a)
      packed[i * 4 + 1 + a] = std::bit_cast<int32_t>(p.points[i * 3 + a]);
  }
  return adopt(std::move(packed), {static_cast<int>(p.n), 4});
}

cpu::NeighborQuery knn_query(int64_t k, std::string_view operation) {
  if (k < 1) fail(operation, "k must be >= 1, got " + std::to_string(k));
  return {std::min(k, kMaxRows), std::nullopt};
}

cpu::NeighborQuery radius_query(float radius, std::optional<int64_t> max_neighbors,
                                std::string_view operation) {
  if (!(radius >= 0)) fail(operation, "radius must be >= 0, got " + std::to_string(radius));
  if (max_neighbors && *max_neighbors < 1)
    fail(operation, "max_neighbors must be >= 1, got " + std::to_string(*max_neighbors));
  return {std::min(max_neighbors.value_or(kMaxRows), kMaxRows), cpu::squared_reach(radius)};
}

struct NeighborIndex::State {
  Rows rows;
  cpu::NeighborTree tree;
  explicit State(Rows r) : rows(std::move(r)), tree(rows.places) {}
};

NeighborIndex::NeighborIndex(const mx::array& rows, const std::optional<mx::array>& batch_indices,
                             std::string_view operation, std::string_view what)
    : state_(std::make_shared<const State>(checked(rows, batch_indices, operation, what))) {}

NeighborRelation::Ptr NeighborIndex::search(const cpu::NeighborQuery& wanted,
                                            std::optional<int64_t> max_neighbors,
                                            const std::optional<mx::array>& queries,
                                            const std::optional<mx::array>& batch_indices,
                                            std::string_view operation) const {
  // More than there are rows cannot be found; memory is taken for what can.
  const cpu::NeighborQuery query{std::min(wanted.limit, std::max<int64_t>(rows(), 1)),
                                 wanted.reach};
  auto found = named(operation, [&] {
    if (!queries) {
      if (batch_indices) fail(operation, "query_batch_indices must come with query rows");
      return state_->tree.search(query);
    }
    const Rows asked = checked(*queries, batch_indices, operation, "query_coords");
    if (asked.set.has_value() != state_->rows.set.has_value())
      fail(operation, "source and query must both be integer coordinates or both be float points");
    if (asked.set)
      check_same_dtype(*state_->rows.set, *asked.set, operation, "source_coords and query_coords");
    return state_->tree.search(asked.places, query);
  });
  return std::make_shared<const NeighborRelation>(std::move(found), rows(), max_neighbors);
}

NeighborRelation::Ptr NeighborIndex::knn(int64_t k, const std::optional<mx::array>& queries,
                                         const std::optional<mx::array>& batch_indices,
                                         std::string_view operation) const {
  return search(knn_query(k, operation), k, queries, batch_indices, operation);
}

NeighborRelation::Ptr NeighborIndex::radius(float radius, std::optional<int64_t> max_neighbors,
                                            const std::optional<mx::array>& queries,
                                            const std::optional<mx::array>& batch_indices,
                                            std::string_view operation) const {
  return search(radius_query(radius, max_neighbors, operation), max_neighbors, queries,
                batch_indices, operation);
}

int64_t NeighborIndex::rows() const { return state_->rows.places.n; }

std::string NeighborIndex::text() const {
  return "NeighborIndex(" + std::to_string(rows()) +
         (state_->rows.set ? " coordinates)" : " points)");
}

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
