// Neighbor relations and the index that finds them. Arguments only.
#include "lattice/ops/neighbors.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/arrays.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Optional = std::optional<mx::array>;
using Integer = std::optional<int64_t>;
using Neighbors = NeighborRelation;
using Stream = mx::StreamOrDevice;

mx::array counts_of(const Neighbors& r) {
  const int32_t counts[] = {static_cast<int32_t>(r.edge_count()),
                            static_cast<int32_t>(r.n_query())};
  return new_array(counts, {2}, mx::int32);
}

// A relation of given edges, checked.
void def_of_edges(nb::class_<Neighbors>& c) {
  def_new(
      c,
      [](const mx::array& query_rows, const mx::array& source_rows, const Optional& ids,
         const Optional& distances, const Integer& n_query, const Integer& n_source,
         const Integer& most, const Integer& older_n_query, const Integer& older_n_source) {
        const int64_t queries = given_once(n_query, older_n_query, {"NeighborRelation", "n_query"}),
                      sources =
                          given_once(n_source, older_n_source, {"NeighborRelation", "n_source"});
        return Neighbors::from_edges(query_rows, source_rows, ids, distances, queries, sources,
                                     most);
      },
      "query_rows"_a, "source_rows"_a, "neighbor_ids"_a = nb::none(), "distances"_a = nb::none(),
      nb::kw_only(), "n_query"_a = nb::none(), "n_source"_a = nb::none(),
      "max_neighbors"_a = nb::none(), "n_query_capacity"_a = nb::none(),
      "n_source_capacity"_a = nb::none(), Unlocked());
}

void bind_relation(nb::module_& m) {
  using Edges = NeighborEdges;
  nb::class_<Edges>(m, "NeighborEdges",
                    "Edge e joins query_rows[e] and source_rows[e], its neighbor neighbor_ids[e].")
      .def_prop_ro("query_rows", [](const Edges& e) { return private_copy(e.query_rows); })
      .def_prop_ro("source_rows", [](const Edges& e) { return private_copy(e.source_rows); })
      .def_prop_ro("neighbor_ids", [](const Edges& e) { return private_copy(e.neighbor_ids); });
  nb::class_<Neighbors> c(
      m, "NeighborRelation",
      R"(The neighbors of each query, nearest first: by squared distance, then by source row.

It can also be made of edges whose query rows ascend; distances are 0 where they are not given. A
row outside 0..n - 1 and a wrong rank in neighbor_ids are a ValueError.

>>> from mlx_lattice import ops, samples
>>> r = ops.knn_relation(samples.tensor(), k=2)
>>> r.n_query, r.query_counts.tolist()
(6, [2, 2, 2, 2, 2, 1]))");
  def_of_edges(c);
  c.def_prop_ro("edges", &Neighbors::edges, nb::rv_policy::reference_internal, Unlocked(),
                "The edges as three arrays.")
      .def_prop_ro(
          "distances", [](const Neighbors& r) { return private_copy(r.distances()); },
          "Squared distance of each edge, float32.")
      .def_prop_ro(
          "row_offsets", [](const Neighbors& r) { return private_copy(r.row_offsets()); },
          "Edges of query q: row_offsets[q] .. row_offsets[q + 1].")
      .def_prop_ro("counts", &counts_of, "[edges, queries] as an array.")
      .def_prop_ro("query_counts", &Neighbors::counts, "Neighbors of each query.")
      .def_prop_ro("edge_count", &Neighbors::edge_count, "Edges.")
      .def_prop_ro("n_query", &Neighbors::n_query, "Query rows.")
      .def_prop_ro("n_source", &Neighbors::n_source, "Source rows.")
      .def_prop_ro("max_neighbors", &Neighbors::max_neighbors, "The limit, or None.")
      .def_prop_ro("truncated", &Neighbors::truncated,
                   "Neighbors within the radius that max_neighbors cut off.")
      // Names of the older package.
      .def_prop_ro("query_count", &Neighbors::n_query, "n_query.")
      .def_prop_ro("n_query_capacity", &Neighbors::n_query, "n_query.")
      .def_prop_ro("n_source_capacity", &Neighbors::n_source, "n_source.")
      .def_prop_ro("edge_capacity", &Neighbors::edge_count, "edge_count.")
      .def("__repr__", &Neighbors::text)
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::module_::import_("mlx_lattice.viewer.notebook")
                .attr("neighbor_relation")(self);
          },
          nb::sig("def _repr_html_(self) -> str"));
}

void bind_index(nb::module_& m) {
  nb::class_<NeighborIndex> c(
      m, "NeighborIndex",
      R"(Coordinates (N, 4) or points (N, 3), sorted once for any number of queries.

batch_indices: the batch item of each point, integers (N,).

>>> from mlx_lattice import core
>>> index = core.NeighborIndex([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]])
>>> index.radius([[0.2, 0, 0]], radius=1.0).edges.source_rows.tolist()
[0, 1])");
  def_init(
      c,
      [](const mx::array& coords, const Optional& batch_indices) {
        return NeighborIndex(coords, batch_indices);
      },
      "coords"_a, nb::kw_only(), "batch_indices"_a = nb::none(), Unlocked());
  def_method(
      c, "knn",
      [](const NeighborIndex& self, const Optional& queries, int64_t k,
         const Optional& batch_indices) { return self.knn(k, queries, batch_indices); },
      "query_coords"_a = nb::none(), nb::kw_only(), "k"_a, "query_batch_indices"_a = nb::none(),
      Unlocked(), "The k nearest rows of each query; without queries, of the rows themselves.");
  def_method(
      c, "radius",
      [](const NeighborIndex& self, const Optional& queries, float radius, const Integer& most,
         const Optional& batch_indices) {
        return self.radius(radius, most, queries, batch_indices);
      },
      "query_coords"_a = nb::none(), nb::kw_only(), "radius"_a, "max_neighbors"_a = nb::none(),
      "query_batch_indices"_a = nb::none(), Unlocked(),
      "All rows within the radius of each query; max_neighbors keeps the nearest.");
  c.def_prop_ro("n_source", &NeighborIndex::rows, "The number of rows.")
      .def("__len__", &NeighborIndex::rows)
      .def("__repr__", &NeighborIndex::text);
}

}  // namespace

void bind_neighbors(nb::module_& m) {
  bind_relation(m);
  bind_index(m);
  def(
      m, "build_knn_relation",
      [](const mx::array& source, const Optional& query, int64_t k, const Optional& batch,
         const Optional& query_batch,
         Stream s) { return build_knn_relation({source, query, batch, query_batch}, k, s); },
      "source_coords"_a, "query_coords"_a, "k"_a, "batch_indices"_a, "query_batch_indices"_a,
      "stream"_a, Unlocked());
  def(
      m, "build_radius_relation",
      [](const mx::array& source, const Optional& query, float radius, const Integer& most,
         const Optional& batch, const Optional& query_batch, Stream s) {
        return build_radius_relation({source, query, batch, query_batch}, radius, most, s);
      },
      "source_coords"_a, "query_coords"_a, "radius"_a, "max_neighbors"_a, "batch_indices"_a,
      "query_batch_indices"_a, "stream"_a, Unlocked());
  def(m, "knn_graph", &knn_graph, "points"_a, "k"_a, "batch_indices"_a, "stream"_a, Unlocked());
  using Query = const std::optional<SparseTensor>&;
  def(
      m, "knn_relation",
      [](const SparseTensor& source, Query query, int64_t k, Stream s) {
        return knn_relation(source, query, k, s);
      },
      "source"_a, "query"_a, "k"_a, "stream"_a, Unlocked());
  def(
      m, "radius_relation",
      [](const SparseTensor& source, Query query, float radius, const Integer& most, Stream s) {
        return radius_relation(source, query, radius, most, s);
      },
      "source"_a, "query"_a, "radius"_a, "max_neighbors"_a, "stream"_a, Unlocked());
  def(
      m, "gather_neighbor_features",
      [](const TensorOrArray& source, const Neighbors& relation, Stream s) {
        const auto* tensor = std::get_if<SparseTensor>(&source);
        return gather_neighbor_features(tensor ? tensor->feats() : std::get<mx::array>(source),
                                        relation, s);
      },
      "source"_a, "relation"_a, "stream"_a);
}
