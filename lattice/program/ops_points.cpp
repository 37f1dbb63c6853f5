// Points in programs: segments, neighbors, rulebooks, point convolution; docs/points.md.
#include "lattice/core/errors.h"
#include "lattice/core/neighbors.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/neighbors.h"
#include "lattice/ops/rulebook.h"
#include "lattice/ops/segments.h"
#include "lattice/ops/surface.h"
#include "lattice/ops/triplets.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

using Near = NeighborRelation::Ptr;

constexpr Operand kX{"x", "array"}, kLengths{"lengths", "array"}, kSource{"source", "points"},
    kRelation{"relation", "neighbors"};
constexpr Attribute kReduction[]{
    {"operation", Type::text}, {"ties", Type::text}, {"empty_value", Type::number, true}};

const PointSet& points_of(const Call& call, const char* operand) {
  return call.object<PointSet>(operand, "points");
}
ProgramValue points_value(const PointSet& points) { return object_value("points", points); }
ProgramValue book_value(const Rulebook& book) { return object_value("rulebook", book); }

SegmentOptions reduction_of(const Call& call, const char* name) {
  return segment_options(call.text("operation"), call.text("ties"),
                         call.optional_number("empty_value"), name);
}

void add_segments(std::vector<Operation>& rows) {
  const std::vector<Attribute> how(std::begin(kReduction), std::end(kReduction));
  rows.push_back({"segment_reduce",
                  1,
                  {kX, kLengths},
                  how,
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {segment_reduce(call.array("x"), call.array("lengths"),
                                           reduction_of(call, "segment_reduce"))};
                  }});
  rows.push_back({"segment_reduce_offsets",
                  1,
                  {kX, {"offsets", "array"}},
                  how,
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {segment_reduce_offsets(call.array("x"), call.array("offsets"),
                                                   reduction_of(call, "segment_reduce_offsets"))};
                  }});
  rows.push_back({"indexed_segment_reduce",
                  1,
                  {kX, {"indices", "array"}, kLengths},
                  how,
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {indexed_segment_reduce(call.array("x"), call.array("indices"),
                                                   call.array("lengths"),
                                                   reduction_of(call, "indexed_segment_reduce"))};
                  }});
}

void add_segment_rows(std::vector<Operation>& rows) {
  rows.push_back({"segment_expand",
                  1,
                  {{"y", "array"}, kLengths},
                  {},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {segment_expand(call.array("y"), call.array("lengths"))};
                  }});
  rows.push_back({"segment_softmax",
                  1,
                  {kX, kLengths},
                  {},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {segment_softmax(call.array("x"), call.array("lengths"))};
                  }});
  rows.push_back(
      {"segment_offsets",
       1,
       {kLengths},
       {},
       {"array"},
       Phase::geometry,
       [](const Call& call) -> Results { return {segment_offsets(call.array("lengths"))}; }});
  rows.push_back(
      {"segment_indices",
       1,
       {kLengths},
       {},
       {"array"},
       Phase::geometry,
       [](const Call& call) -> Results { return {segment_indices(call.array("lengths"))}; }});
}

NeighborRows rows_of(const Call& call) {
  return {call.array("source_coords"), call.optional_array("query_coords"),
          call.optional_array("batch_indices"), call.optional_array("query_batch_indices")};
}

void add_neighbors(std::vector<Operation>& rows) {
  const std::vector<Operand> operands{{"source_coords", "array"},
                                      {"query_coords", "array", Form::optional},
                                      {"batch_indices", "array", Form::optional},
                                      {"query_batch_indices", "array", Form::optional}};
  const Attribute k{"k", Type::integer, false, -1, 1};
  rows.push_back(
      {"build_knn_relation",
       1,
       operands,
       {k},
       {"neighbors"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {object_value("neighbors", build_knn_relation(rows_of(call), call.integer("k")))};
       }});
  rows.push_back({"build_radius_relation",
                  1,
                  operands,
                  {{"radius", Type::number}, {"max_neighbors", Type::integer, true, -1, 1}},
                  {"neighbors"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {object_value(
                        "neighbors", build_radius_relation(
                                         rows_of(call), static_cast<float>(call.number("radius")),
                                         call.optional_integer("max_neighbors")))};
                  }});
  rows.push_back(
      {"knn_graph",
       1,
       {{"points", "array"}, {"batch_indices", "array"}},
       {k},
       {"array"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {knn_graph(call.array("points"), call.integer("k"), call.array("batch_indices"))};
       }});
  rows.push_back({"feature_graph",
                  1,
                  {kX, kLengths},
                  {k},
                  {"array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {
                        feature_graph(call.array("x"), call.integer("k"), call.array("lengths"))};
                  }});
  rows.push_back({"sample_centers",
                  1,
                  {{"positions", "array"}, kLengths},
                  {{"share", Type::number}},
                  {"array", "array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const auto [chosen, counts] = sample_centers(
                        call.array("positions"), call.array("lengths"), call.number("share"));
                    return {chosen, counts};
                  }});
}

// Arrays of a relation of neighbors, each a node of its own.
template <typename F>
void add_part(std::vector<Operation>& rows, const char* name, F part) {
  rows.push_back(
      {name, 1, {kRelation}, {}, {"array"}, Phase::decision, [part](const Call& call) -> Results {
         return {part(*call.object<Near>("relation", "neighbors"))};
       }});
}

void add_parts(std::vector<Operation>& rows) {
  add_part(rows, "neighbor_query_rows",
           [](const NeighborRelation& r) { return r.edges().query_rows; });
  add_part(rows, "neighbor_source_rows",
           [](const NeighborRelation& r) { return r.edges().source_rows; });
  add_part(rows, "neighbor_ids", [](const NeighborRelation& r) { return r.edges().neighbor_ids; });
  add_part(rows, "neighbor_distances", [](const NeighborRelation& r) { return r.distances(); });
  add_part(rows, "neighbor_row_offsets", [](const NeighborRelation& r) { return r.row_offsets(); });
  add_part(rows, "neighbor_counts", [](const NeighborRelation& r) { return r.counts(); });
  rows.push_back({"gather_neighbor_features",
                  1,
                  {{"source", "array|sparse"}, kRelation},
                  {},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    const auto* tensor = std::get_if<SparseTensor>(&call.value("source"));
                    return {
                        gather_neighbor_features(tensor ? tensor->feats() : call.array("source"),
                                                 *call.object<Near>("relation", "neighbors"))};
                  }});
  rows.push_back({"neighbor_attention",
                  1,
                  {{"q", "array", Form::optional},
                   {"k", "array", Form::optional},
                   {"v", "array"},
                   kRelation,
                   {"bias", "array", Form::optional}},
                  {{"scale", Type::number, true}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {neighbor_attention(
                        call.optional_array("q"), call.optional_array("k"), call.array("v"),
                        edge_segments(*call.object<Near>("relation", "neighbors")),
                        {call.optional_array("bias"), call.optional_number("scale")})};
                  }});
}

void add_point_sets(std::vector<Operation>& rows) {
  rows.push_back(
      {"point_set",
       1,
       {{"positions", "array"}, {"lengths", "array", Form::optional}},
       {{"grid", Type::number}},
       {"points"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {points_value(PointSet(call.array("positions"), call.optional_array("lengths"),
                                       static_cast<float>(call.number("grid"))))};
       }});
  rows.push_back(
      {"point_positions",
       1,
       {{"points", "points"}},
       {},
       {"array"},
       Phase::decision,
       [](const Call& call) -> Results { return {points_of(call, "points").positions()}; }});
  rows.push_back(
      {"point_lengths",
       1,
       {{"points", "points"}},
       {},
       {"array"},
       Phase::decision,
       [](const Call& call) -> Results { return {points_of(call, "points").lengths()}; }});
  rows.push_back({"grid_downsample",
                  1,
                  {{"points", "points"}},
                  {{"cell", Type::number}, {"pick", Type::text}},
                  {"points", "array", "array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const Downsampled made = grid_downsample(
                        points_of(call, "points"), static_cast<float>(call.number("cell")),
                        parse_pick(call.text("pick"), "grid_downsample"));
                    return {points_value(made.points), made.indices, made.cell_of};
                  }});
  rows.push_back({"radius_search",
                  1,
                  {{"points", "array"},
                   {"queries", "array"},
                   {"lengths", "array", Form::optional},
                   {"query_lengths", "array", Form::optional}},
                  {{"radius", Type::number}, {"shape", Type::text}},
                  {"array", "array", "array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const Neighbors n = radius_search(
                        PointSet(call.array("points"), call.optional_array("lengths"), 1),
                        PointSet(call.array("queries"), call.optional_array("query_lengths"), 1),
                        static_cast<float>(call.number("radius")),
                        parse_shape(call.text("shape"), "radius_search"));
                    return {n.rows, n.counts, n.distances};
                  }});
}

Results run_rulebook(const Call& call) {
  return {book_value(build_rulebook(
      points_of(call, "source"), points_of(call, "target"), call.integer("kernel_size"),
      static_cast<float>(call.number("rfs")), parse_shape(call.text("shape"), "build_rulebook"),
      call.optional_number("radius"), call.flag("allow_empty")))};
}

void add_rulebooks(std::vector<Operation>& rows) {
  const Attribute size{"kernel_size", Type::integer, false, -1, 1, 32};
  const Attribute stride{"stride", Type::number};
  rows.push_back({"build_rulebook",
                  1,
                  {kSource, {"target", "points"}},
                  {size,
                   {"rfs", Type::number},
                   {"shape", Type::text},
                   {"radius", Type::number, true},
                   {"allow_empty", Type::flag}},
                  {"rulebook"},
                  Phase::decision,
                  run_rulebook});
  rows.push_back({"build_partition_rulebook",
                  1,
                  {kSource},
                  {stride, size},
                  {"rulebook", "points"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const Partition made = build_partition_rulebook(
                        points_of(call, "source"), static_cast<float>(call.number("stride")),
                        call.integer("kernel_size"));
                    return {book_value(made.rulebook), points_value(made.targets)};
                  }});
  rows.push_back({"build_subdivision_rulebook",
                  1,
                  {kSource},
                  {{"expansion", Type::integer, false, -1, 1, 32}},
                  {"rulebook", "points"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const Generated made = build_subdivision_rulebook(points_of(call, "source"),
                                                                      call.integer("expansion"));
                    return {book_value(made.rulebook), points_value(made.targets)};
                  }});
  rows.push_back({"build_generative_rulebook",
                  1,
                  {kSource, {"stencil", "array", Form::optional}},
                  {size, {"expansion", Type::number}},
                  {"rulebook", "points"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    const Generated made = build_generative_rulebook(
                        points_of(call, "source"), call.integer("kernel_size"),
                        static_cast<float>(call.number("expansion")),
                        call.optional_array("stencil"));
                    return {book_value(made.rulebook), points_value(made.targets)};
                  }});
}

void add_point_conv(std::vector<Operation>& rows) {
  rows.push_back(
      {"rulebook_transposed",
       1,
       {{"rulebook", "rulebook"}},
       {{"negate", Type::flag}},
       {"rulebook"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {book_value(
             call.object<Rulebook>("rulebook", "rulebook").transposed(call.flag("negate")))};
       }});
  rows.push_back(
      {"rulebook_relation",
       1,
       {{"rulebook", "rulebook"}},
       {},
       {"relation"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {object_value("relation", call.object<Rulebook>("rulebook", "rulebook").relation)};
       }});
  rows.push_back(
      {"point_conv",
       1,
       {kX, {"weight", "array"}, {"relation", "relation"}, {"bias", "array", Form::optional}},
       {},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         return {point_conv(call.array("x"), call.array("weight"),
                            call.object<Relation::Ptr>("relation", "relation"),
                            call.optional_array("bias"))};
       }});
}

}  // namespace

std::vector<Operation> point_operations() {
  std::vector<Operation> rows;
  add_segments(rows);
  add_segment_rows(rows);
  add_neighbors(rows);
  add_parts(rows);
  add_point_sets(rows);
  add_rulebooks(rows);
  add_point_conv(rows);
  return rows;
}

}  // namespace lattice::program
