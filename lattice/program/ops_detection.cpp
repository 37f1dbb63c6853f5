// The operations that detectors add to programs: voxels of points, dense maps, the choice among
// boxes. docs/ops/voxels.md, docs/ops/maps.md and docs/ops/boxes.md have the formulas.
#include "lattice/ops/algebra.h"
#include "lattice/ops/boxes.h"
#include "lattice/ops/maps.h"
#include "lattice/ops/voxels.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr const char* kVoxels = "voxels";
constexpr Operand kX{"x", "sparse"}, kBoxesA{"a", "array"}, kBoxesB{"b", "array"};
constexpr Attribute kKind{"kind", Type::text}, kBatchSize{"batch_size", Type::integer, true, -1, 0};

std::array<double, 3> three(const Call& call, const char* name) {
  const std::vector<double>& v = call.numbers(name);
  return {v[0], v[1], v[2]};
}

Results run_point_voxels(const Call& call) {
  PointVoxels made =
      point_voxels(call.array("points"), three(call, "low"), three(call, "high"),
                   three(call, "size"), call.integer("max_points"), call.integer("max_voxels"));
  return {object_value(kVoxels, std::move(made))};
}

template <typename F>
void add_part(std::vector<Operation>& rows, const char* name, F part) {
  rows.push_back({name,
                  1,
                  {{"voxels", kVoxels}},
                  {},
                  {"array"},
                  Phase::voxelize,
                  [part](const Call& call) -> Results {
                    return {part(call.object<PointVoxels>("voxels", kVoxels))};
                  }});
}

void add_voxels(std::vector<Operation>& rows) {
  rows.push_back({"point_voxels",
                  1,
                  {{"points", "array"}},
                  {{"low", Type::numbers, false, 3},
                   {"high", Type::numbers, false, 3},
                   {"size", Type::numbers, false, 3},
                   {"max_points", Type::integer},
                   {"max_voxels", Type::integer}},
                  {kVoxels},
                  Phase::voxelize,
                  run_point_voxels});
  add_part(rows, "voxel_slots", [](const PointVoxels& v) { return v.voxels; });
  add_part(rows, "voxel_mean", [](const PointVoxels& v) { return v.mean; });
  add_part(rows, "voxel_coords", [](const PointVoxels& v) { return v.coords; });
  add_part(rows, "voxel_counts", [](const PointVoxels& v) { return v.counts; });
  add_part(rows, "voxel_owner", [](const PointVoxels& v) { return v.owner; });
  add_part(rows, "voxel_dropped", [](const PointVoxels& v) { return v.dropped(); });
}

void add_tensors(std::vector<Operation>& rows) {
  rows.push_back(
      {"sparse_tensor",
       1,
       {{"coords", "array"}, {"feats", "array"}},
       {kStride},
       {"sparse"},
       Phase::geometry,
       [](const Call& call) -> Results {
         return {SparseTensor(call.array("coords"), call.array("feats"), call.triple("stride"))};
       }});
  rows.push_back({"with_bounds",
                  1,
                  {kX},
                  {{"bounds", Type::integers, false, 6}},
                  {"sparse"},
                  Phase::geometry,
                  [](const Call& call) -> Results {
                    const std::vector<int64_t>& b = call.integers("bounds");
                    return {call.sparse("x").with_bounds({{b[0], b[1], b[2]}, {b[3], b[4], b[5]}})};
                  }});
}

void add_maps(std::vector<Operation>& rows) {
  rows.push_back({"sum_over",
                  1,
                  {kX},
                  {{"axis", Type::integer}},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {sum_over(call.sparse("x"), call.integer("axis"))};
                  }});
  rows.push_back(
      {"merge_levels",
       1,
       {{"levels", "sparse", Form::list}},
       {},
       {"sparse"},
       Phase::features,
       [](const Call& call) -> Results { return {merge_levels(call.sparse_list("levels"))}; }});
  rows.push_back({"from_map",
                  1,
                  {{"dense", "array"}},
                  {{"stride", Type::integer, false, -1, 1}},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {from_map(call.array("dense"), call.integer("stride"))};
                  }});
  rows.push_back({"to_map",
                  1,
                  {kX},
                  {{"shape", Type::integers, true, 2, 1, 1 << 20}, kBatchSize},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    std::optional<std::array<int64_t, 2>> shape;
                    if (call.has("shape"))
                      shape = {call.integers("shape")[0], call.integers("shape")[1]};
                    return {to_map(call.sparse("x"), shape, call.optional_integer("batch_size"))};
                  }});
}

// These read values, so that what follows cannot be prepared.
void add_choices(std::vector<Operation>& rows) {
  rows.push_back({"rows_where",
                  1,
                  {{"mask", "array"}},
                  {},
                  {"array"},
                  Phase::decision,
                  [](const Call& call) -> Results { return {rows_where(call.array("mask"))}; }});
  rows.push_back(
      {"nms",
       1,
       {{"boxes", "array"}, {"scores", "array"}},
       {{"threshold", Type::number}, kKind, {"pre", Type::integer}, {"post", Type::integer}},
       {"array"},
       Phase::decision,
       [](const Call& call) -> Results {
         return {nms(call.array("boxes"), call.array("scores"), call.number("threshold"),
                     call.text("kind"), call.integer("pre"), call.integer("post"))};
       }});
  rows.push_back({"box_overlap",
                  1,
                  {kBoxesA, kBoxesB},
                  {kKind},
                  {"array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {box_overlap(call.array("a"), call.array("b"), call.text("kind"))};
                  }});
  rows.push_back({"box_overlap_pairs",
                  1,
                  {kBoxesA, kBoxesB},
                  {kKind},
                  {"array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {box_overlap_pairs(call.array("a"), call.array("b"), call.text("kind"))};
                  }});
  rows.push_back({"points_in_boxes",
                  1,
                  {{"points", "array"}, {"boxes", "array"}},
                  {},
                  {"array"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {points_in_boxes(call.array("points"), call.array("boxes"))};
                  }});
}

}  // namespace

std::vector<Operation> detection_operations() {
  std::vector<Operation> rows;
  add_voxels(rows);
  add_tensors(rows);
  add_maps(rows);
  add_choices(rows);
  return rows;
}

}  // namespace lattice::program
