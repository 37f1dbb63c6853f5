// Neighbor relations and the index that finds them. Arguments only.
#include "lattice/ops/neighbors.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <mlx/ops.h>

#include <algorithm>

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Optional = std::optional<mx::array>;
using Neighbors = NeighborRelation;

std::optional<int64_t> limit(nb::handle value, const char* operation) {
  if (value.is_none()) return std::nullopt;
  return integer(value, operation, "max_neighbors");
}

// A relation of given edges, checked.
std::shared_ptr<Neighbors> neighbors_of_edges(const Given& query_rows, const Given& source_rows,
                                              const std::optional<Given>& neighbor_ids,
                                              const std::optional<Given>& given_distances,
                                              nb::handle n_query, nb::handle n_source,
                                              nb::handle max_neighbors, nb::handle n_query_capacity,
                                              nb::handle n_source_capacity) {
  constexpr const char* kName = "NeighborRelation";
  const int64_t queries = integer(given_once(n_query, n_query_capacity, kName, "n_query"), kName,
                                  "n_query"),
                sources = integer(given_once(n_source, n_source_capacity, kName, "n_source"), kName,
                                  "n_source");
  const auto most = limit(max_neighbors, kName);
  constexpr int64_t kMost = INT32_MAX - 1;
  if (queries < 0 || sources < 0 || queries > kMost || sources > kMost)
    throw std::invalid_argument("[NeighborRelation] n_query and n_source must be in 0..2^31-2");
  const Optional distances = given_distances ? Optional(**given_distances) : std::nullopt,
                 ids = neighbor_ids ? Optional(**neighbor_ids) : std::nullopt;
  Release release;
  const mx::array q = checked_rows(*query_rows, queries, kName, "query_rows"),
                  r = checked_rows(*source_rows, sources, kName, "source_rows");
  const auto n = static_cast<int64_t>(q.size());
  if (r.size() != q.size() || (distances && distances->shape() != q.shape()) ||
      (ids && ids->shape() != q.shape()))
    throw std::invalid_argument(
        "[NeighborRelation] query_rows, source_rows, neighbor_ids and distances must have one "
        "length");
  cpu::Neighbors found;
  found.offsets = cpu::Buffer<int32_t>(queries + 1);
  found.sources = cpu::Buffer<int32_t>(n);
  found.distances = cpu::Buffer<float>(n);
  std::fill(found.offsets.begin(), found.offsets.end(), 0);
  std::fill(found.distances.begin(), found.distances.end(), 0.0f);
  const int32_t* rows = n ? q.data<int32_t>() : nullptr;
  if (!std::is_sorted(rows, rows + n))
    throw std::invalid_argument("[NeighborRelation] query_rows must ascend");
  for (int64_t e = 0; e < n; ++e) ++found.offsets[rows[e] + 1];
  for (int64_t i = 0; i < queries; ++i) found.offsets[i + 1] += found.offsets[i];
  if (n && ids) {
    const mx::array given = checked_rows(*ids, n, kName, "neighbor_ids");
    for (int64_t e = 0; e < n; ++e)
      if (given.data<int32_t>()[e] != e - found.offsets[rows[e]])
        throw std::invalid_argument("[NeighborRelation] neighbor_ids[" + std::to_string(e) +
                                    "] must be the rank of the neighbor, " +
                                    std::to_string(e - found.offsets[rows[e]]));
  }
  if (n) std::copy_n(r.data<int32_t>(), n, found.sources.begin());
  if (n && distances) {
    const mx::array given = evaluated(mx::astype(*distances, mx::float32), kName, "distances");
    std::copy_n(given.data<float>(), n, found.distances.begin());
  }
  return std::make_shared<Neighbors>(std::move(found), sources, most);
}

void bind_relation(nb::module_& m) {
  using Edges = NeighborEdges;
  nb::class_<Edges>(m, "NeighborEdges",
                    "Edge e joins query_rows[e] and source_rows[e], its neighbor neighbor_ids[e].")
      .def_prop_ro("query_rows", [](const Edges& e) { return private_copy(e.query_rows); })
      .def_prop_ro("source_rows", [](const Edges& e) { return private_copy(e.source_rows); })
      .def_prop_ro("neighbor_ids", [](const Edges& e) { return private_copy(e.neighbor_ids); });
  nb::class_<Neighbors>(m, "NeighborRelation",
                        "Each query's neighbors, nearest first, by (squared distance, source row).")
      .def(nb::new_(&neighbors_of_edges), "query_rows"_a, "source_rows"_a,
           "neighbor_ids"_a = nb::none(), "distances"_a = nb::none(), nb::kw_only(),
           "n_query"_a = nb::none(), "n_source"_a = nb::none(), "max_neighbors"_a = nb::none(),
           "n_query_capacity"_a = nb::none(), "n_source_capacity"_a = nb::none(),
           "From edges whose query rows ascend; distances are 0 where they are not given.")
      .def_prop_ro("edges", &Neighbors::edges, nb::rv_policy::reference_internal, Unlocked())
      .def_prop_ro(
          "distances", [](const Neighbors& r) { return private_copy(r.distances()); },
          "Squared, float32.")
      .def_prop_ro("row_offsets", [](const Neighbors& r) { return private_copy(r.row_offsets()); })
      .def_prop_ro(
          "counts",
          [](const Neighbors& r) {
            const int32_t counts[] = {static_cast<int32_t>(r.edge_count()),
                                      static_cast<int32_t>(r.n_query())};
            return new_array(counts, {2}, mx::int32);
          },
          "[edges, queries].")
      .def_prop_ro("query_counts", &Neighbors::counts, "Neighbors of each query.")
      .def_prop_ro("edge_count", &Neighbors::edge_count)
      .def_prop_ro("n_query", &Neighbors::n_query)
      .def_prop_ro("n_source", &Neighbors::n_source)
      .def_prop_ro("max_neighbors", &Neighbors::max_neighbors)
      .def_prop_ro("truncated", &Neighbors::truncated,
                   "Neighbors within the radius that max_neighbors cut off.")
      .def("__repr__", &Neighbors::text);
}

void bind_index(nb::module_& m) {
  nb::class_<NeighborIndex>(
      m, "NeighborIndex",
      "Integer coordinates (N, 4) or float points (N, 3), sorted once for any number of queries.")
      .def(
          "__init__",
          [](NeighborIndex* self, const Given& coords, const std::optional<Given>& clouds) {
            Release release;
            new (self) NeighborIndex(*coords, clouds ? Optional(**clouds) : std::nullopt);
          },
          "coords"_a, nb::kw_only(), "batch_indices"_a = nb::none())
      .def(
          "knn",
          [](const NeighborIndex& self, const Optional& queries, nb::handle k,
             const Optional& batch_indices) {
            const int64_t n = integer(k, "NeighborIndex.knn", "k");
            Release release;
            return self.knn(n, queries, batch_indices);
          },
          "query_coords"_a = nb::none(), nb::kw_only(), "k"_a, "query_batch_indices"_a = nb::none(),
          "The k nearest rows of each query; without queries, of the rows themselves.")
      .def(
          "radius",
          [](const NeighborIndex& self, const Optional& queries, nb::handle radius,
             nb::handle max_neighbors, const Optional& batch_indices) {
            const float r = number(radius, "NeighborIndex.radius", "radius");
            const auto most = limit(max_neighbors, "NeighborIndex.radius");
            Release release;
            return self.radius(r, most, queries, batch_indices);
          },
          "query_coords"_a = nb::none(), nb::kw_only(), "radius"_a, "max_neighbors"_a = nb::none(),
          "query_batch_indices"_a = nb::none(), "All rows within the radius of each query.")
      .def_prop_ro("n_source", &NeighborIndex::rows)
      .def("__len__", &NeighborIndex::rows)
      .def("__repr__", &NeighborIndex::text);
}

}  // namespace

void bind_neighbors(nb::module_& m) {
  bind_relation(m);
  bind_index(m);
  m.def(
      "build_knn_relation",
      [](const mx::array& source, const Optional& query, nb::handle k,
         const Optional& batch_indices, const Optional& query_batch_indices, mx::StreamOrDevice s) {
        const int64_t n = integer(k, "build_knn_relation", "k");
        Release release;
        return build_knn_relation({source, query, batch_indices, query_batch_indices}, n, s);
      },
      "source_coords"_a, "query_coords"_a = nb::none(), nb::kw_only(), "k"_a,
      "batch_indices"_a = nb::none(), "query_batch_indices"_a = nb::none(), "stream"_a = nb::none(),
      "The k nearest source rows of each query.");
  m.def(
      "build_radius_relation",
      [](const mx::array& source, const Optional& query, nb::handle radius,
         nb::handle max_neighbors, const Optional& batch_indices,
         const Optional& query_batch_indices, mx::StreamOrDevice s) {
        const float r = number(radius, "build_radius_relation", "radius");
        const auto most = limit(max_neighbors, "build_radius_relation");
        Release release;
        return build_radius_relation({source, query, batch_indices, query_batch_indices}, r, most,
                                     s);
      },
      "source_coords"_a, "query_coords"_a = nb::none(), nb::kw_only(), "radius"_a,
      "max_neighbors"_a = nb::none(), "batch_indices"_a = nb::none(),
      "query_batch_indices"_a = nb::none(), "stream"_a = nb::none(),
      "All source rows within the radius of each query.");
  m.def(
      "knn_relation",
      [](const SparseTensor& source, const std::optional<SparseTensor>& query, nb::handle k,
         mx::StreamOrDevice s) {
        const int64_t n = integer(k, "knn_relation", "k");
        Release release;
        return knn_relation(source, query, n, s);
      },
      "source"_a, "query"_a = nb::none(), nb::kw_only(), "k"_a, "stream"_a = nb::none(),
      "The k nearest coordinates of tensors of equal stride.");
  m.def(
      "radius_relation",
      [](const SparseTensor& source, const std::optional<SparseTensor>& query, nb::handle radius,
         nb::handle max_neighbors, mx::StreamOrDevice s) {
        const float r = number(radius, "radius_relation", "radius");
        const auto most = limit(max_neighbors, "radius_relation");
        Release release;
        return radius_relation(source, query, r, most, s);
      },
      "source"_a, "query"_a = nb::none(), nb::kw_only(), "radius"_a, "max_neighbors"_a = nb::none(),
      "stream"_a = nb::none(), "All coordinates within a radius, in lattice steps.");
  m.def(
      "gather_neighbor_features",
      [](const std::variant<SparseTensor, mx::array>& source, const Neighbors& relation,
         mx::StreamOrDevice s) {
        const auto* tensor = std::get_if<SparseTensor>(&source);
        return gather_neighbor_features(tensor ? tensor->feats() : std::get<mx::array>(source),
                                        relation, s);
      },
      "source"_a, "relation"_a, nb::kw_only(), "stream"_a = nb::none(),
      "(E, C): the features of each edge's source row; source is a tensor or an array (N, C).");
}
