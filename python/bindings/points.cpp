// Points, voxels and the maps between them. Arguments only.
#include "lattice/ops/points.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/ops/reduce_rows.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Optional = std::optional<mx::array>;

PointOptions options(const char* operation, nb::handle voxel_size, nb::handle origin,
                     const Optional& batch_indices) {
  return {floats3(voxel_size, operation, "voxel_size"), floats3(origin, operation, "origin"),
          batch_indices};
}

void bind_values(nb::module_& m) {
  using Quantization = SparseQuantization;
  nb::class_<Quantization>(
      m, "SparseQuantization",
      "Points sorted into voxels: point p lies in voxel inverse_rows[p], voxel v holds counts[v].")
      .def(
          "__init__",
          [](Quantization* self, const Given& coords, const Given& active_rows,
             const Given& inverse_rows, const Given& counts) {
            new (self) Quantization{*coords, *active_rows, *inverse_rows, *counts};
          },
          "coords"_a, "active_rows"_a, "inverse_rows"_a, "counts"_a)
      .def_prop_ro("coords", [](const Quantization& q) { return mx::array(q.coords); })
      .def_prop_ro("active_rows", [](const Quantization& q) { return mx::array(q.active_rows); })
      .def_prop_ro("inverse_rows",
                   [](const Quantization& q) { return private_copy(q.inverse_rows); })
      .def_prop_ro("counts", [](const Quantization& q) { return mx::array(q.counts); })
      .def("__repr__", [](const Quantization& q) {
        return "SparseQuantization(" + std::to_string(q.inverse_rows.size()) + " points in " +
               std::to_string(q.coords.shape(0)) + " voxels)";
      });
  nb::class_<PointVoxelMap>(
      m, "PointVoxelMap",
      "Point p is the sum over slots c of weights[p, c] * voxel rows[p, c]; -1 = none.")
      .def(
          "__init__",
          [](PointVoxelMap* self, const Given& rows, const Given& weights) {
            new (self) PointVoxelMap{*rows, *weights};
          },
          "rows"_a, "weights"_a)
      .def_prop_ro("rows", [](const PointVoxelMap& map) { return mx::array(map.rows); })
      .def_prop_ro("weights", [](const PointVoxelMap& map) { return mx::array(map.weights); });
}

}  // namespace

void bind_points(nb::module_& m) {
  bind_values(m);
  m.def(
      "sparse_quantize",
      [](const mx::array& points, nb::handle voxel_size, const Optional& batch_indices,
         nb::handle origin, const Optional& active_rows, mx::StreamOrDevice s) {
        const PointOptions o = options("sparse_quantize", voxel_size, origin, batch_indices);
        Release release;
        return sparse_quantize(points, o, active_rows, s);
      },
      "points"_a, "voxel_size"_a = 1.0, nb::kw_only(), "batch_indices"_a = nb::none(),
      "origin"_a = 0.0, "active_rows"_a = nb::none(), "stream"_a = nb::none(),
      "Voxels floor((p - origin) / voxel_size) of (N, 3) points, first seen first.");
  m.def(
      "voxelize",
      [](const mx::array& points, const mx::array& feats, nb::handle voxel_size,
         const Optional& batch_indices, nb::handle origin, const Optional& active_rows,
         std::string_view reduction, nb::handle stride, mx::StreamOrDevice s) {
        const PointOptions o = options("voxelize", voxel_size, origin, batch_indices);
        const Reduction how = parse_reduction(reduction, "voxelize", "reduction");
        const Triple step = triple(stride, "voxelize", "stride");
        Release release;
        return voxelize(points, feats, o, active_rows, how, step, s);
      },
      "points"_a, "feats"_a, "voxel_size"_a = 1.0, nb::kw_only(), "batch_indices"_a = nb::none(),
      "origin"_a = 0.0, "active_rows"_a = nb::none(), "reduction"_a = "mean", "stride"_a = 1,
      "stream"_a = nb::none(),
      "The sparse tensor of the features of points, reduced by mean, sum or max over each voxel.");
  m.def(
      "voxelize_with_quantization",
      [](const SparseQuantization& quantization, const mx::array& feats, std::string_view reduction,
         nb::handle stride, const std::optional<SparseTensor>& like, mx::StreamOrDevice s) {
        const Reduction how = parse_reduction(reduction, "voxelize_with_quantization", "reduction");
        const Triple step = triple(stride, "voxelize_with_quantization", "stride");
        Release release;
        return voxelize_with_quantization(quantization, feats, how, step, like, s);
      },
      "quantization"_a, "feats"_a, nb::kw_only(), "reduction"_a = "mean", "stride"_a = 1,
      "template"_a = nb::none(), "stream"_a = nb::none(),
      "voxelize on a quantization made before; a template lends its coordinates' identity.");
  m.def(
      "build_point_voxel_map",
      [](const mx::array& points, const mx::array& voxel_coords, const Optional& voxel_active_rows,
         nb::handle voxel_size, const Optional& batch_indices, nb::handle origin,
         std::string_view interpolation, mx::StreamOrDevice s) {
        const PointOptions o = options("build_point_voxel_map", voxel_size, origin, batch_indices);
        const Interpolation how = parse_interpolation(interpolation, "build_point_voxel_map");
        Release release;
        return build_point_voxel_map(points, voxel_coords, voxel_active_rows, o, how, s);
      },
      "points"_a, "voxel_coords"_a, "voxel_active_rows"_a = nb::none(), "voxel_size"_a = 1.0,
      nb::kw_only(), "batch_indices"_a = nb::none(), "origin"_a = 0.0, "interpolation"_a = "linear",
      "stream"_a = nb::none(),
      "Rows and weights of the voxels around each point, linear or nearest.");
  m.def("interpolate_point_features", &interpolate_point_features, "voxel_feats"_a, "map"_a,
        nb::kw_only(), "stream"_a = nb::none(), Unlocked(),
        "y[p] = sum over slots of weight * voxel_feats[row].");
  m.def(
      "devoxelize",
      [](const mx::array& points, const SparseTensor& voxels, nb::handle voxel_size,
         const Optional& batch_indices, nb::handle origin, std::string_view interpolation,
         mx::StreamOrDevice s) {
        const PointOptions o = options("devoxelize", voxel_size, origin, batch_indices);
        const Interpolation how = parse_interpolation(interpolation, "devoxelize");
        Release release;
        return devoxelize(points, voxels, o, how, s);
      },
      "points"_a, "voxels"_a, "voxel_size"_a = 1.0, nb::kw_only(), "batch_indices"_a = nb::none(),
      "origin"_a = 0.0, "interpolation"_a = "linear", "stream"_a = nb::none(),
      "Features of the voxels at the points, (P, C), by linear or nearest interpolation.");
}
