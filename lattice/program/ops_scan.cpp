// Points to voxels and back in programs; docs/ops/points.md has the formulas.
#include "lattice/ops/points.h"
#include "lattice/ops/points_scan.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr Operand kPoints{"points", "array"}, kBatch{"batch_indices", "array", Form::optional},
    kActive{"active_rows", "array", Form::optional};
constexpr Attribute kVoxelSize{"voxel_size", Type::numbers, false, 3},
    kOrigin{"origin", Type::numbers, false, 3};

std::array<double, 3> three(const Call& call, const char* name) {
  const std::vector<double>& v = call.numbers(name);
  return {v[0], v[1], v[2]};
}

PointOptions frame_of(const Call& call) {
  return {three(call, "voxel_size"), three(call, "origin"), call.optional_array("batch_indices")};
}

Results run_voxelize(const Call& call) {
  return {voxelize(
      call.array("points"), call.array("feats"), frame_of(call), call.optional_array("active_rows"),
      parse_reduction(call.text("reduction"), "voxelize", "reduction"), call.triple("stride"))};
}

Results run_devoxelize(const Call& call) {
  return {devoxelize(call.array("points"), call.sparse("voxels"), frame_of(call),
                     parse_interpolation(call.text("interpolation"), "devoxelize"))};
}

Results run_voxel_features(const Call& call) {
  const VoxelScan scan =
      voxel_features(call.array("points"), call.arrays("columns"), call.number("voxel"));
  return {scan.tensor, scan.rows};
}

}  // namespace

std::vector<Operation> scan_operations() {
  return {
      {"crop_points",
       1,
       {kPoints},
       {{"low", Type::numbers, false, 3}, {"high", Type::numbers, false, 3}},
       {"array"},
       Phase::voxelize,
       [](const Call& call) -> Results {
         return {crop_points(call.array("points"), three(call, "low"), three(call, "high"))};
       }},
      {"voxel_features",
       1,
       {kPoints, {"columns", "array", Form::list}},
       {{"voxel", Type::number}},
       {"sparse", "array"},
       Phase::voxelize,
       run_voxel_features},
      {"to_points",
       1,
       {{"values", "array"}, {"rows", "array"}},
       {{"fill", Type::number}},
       {"array"},
       Phase::points,
       [](const Call& call) -> Results {
         return {to_points(call.array("values"), call.array("rows"), call.number("fill"))};
       }},
      {"voxelize",
       1,
       {kPoints, {"feats", "array"}, kBatch, kActive},
       {kVoxelSize, kOrigin, {"reduction", Type::text}, kStride},
       {"sparse"},
       Phase::voxelize,
       run_voxelize},
      {"devoxelize",
       1,
       {kPoints, {"voxels", "sparse"}, kBatch},
       {kVoxelSize, kOrigin, {"interpolation", Type::text}},
       {"array"},
       Phase::points,
       run_devoxelize},
  };
}

}  // namespace lattice::program
