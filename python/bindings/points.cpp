// Points, voxels and the maps between them. Arguments only.
#include "lattice/ops/points.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/ops/points_scan.h"
#include "lattice/ops/reduce_rows.h"

using namespace lattice;
using namespace nb::literals;

// Points (N, 3): NumPy's float64 stays float64, because float32 has steps of half a meter on a map.
struct Positions : mx::array {};
template <>
struct Argument<Positions> {
  static constexpr auto Name = nb::detail::const_name("ArrayLike");
  static Positions from(nb::handle value, At at) {
    if (nb::hasattr(value, "__array_interface__") &&
        nb::cast<std::string>(nb::str(value.attr("dtype").attr("name"))) == "float64") {
      const nb::module_ mlx = nb::module_::import_("mlx.core");
      const nb::object plain = value.attr("astype")("=f8", nb::arg("order") = "C");
      return {nb::cast<mx::array>(mlx.attr("array")(plain, mlx.attr("float64")))};
    }
    return {array(value, at)};
  }
};

namespace {

using Optional = std::optional<mx::array>;
using Array = const mx::array&;
using Numbers = const std::array<double, 3>&;
using Stream = mx::StreamOrDevice;
using Text = std::string_view;

PointOptions options(Numbers voxel_size, Numbers origin, const Optional& batch_indices) {
  return {voxel_size, origin, batch_indices};
}

void bind_values(nb::module_& m) {
  using Quantization = SparseQuantization;
  nb::class_<Quantization> c(
      m, "SparseQuantization",
      R"(Points sorted into voxels: point p lies in voxel inverse_rows[p], voxel v holds counts[v].

>>> from mlx_lattice import ops
>>> q = ops.sparse_quantize([[0.1, 0, 0], [0.2, 0, 0], [1.5, 0, 0]], 1.0)
>>> q.inverse_rows.tolist(), q.counts.tolist()
([0, 0, 1], [2, 1]))");
  def_init(
      c,
      [](Array coords, Array active_rows, Array inverse_rows, Array counts) {
        return Quantization{coords, active_rows, inverse_rows, counts};
      },
      "coords"_a, "active_rows"_a, "inverse_rows"_a, "counts"_a);
  c.def_prop_ro(
       "coords", [](const Quantization& q) { return mx::array(q.coords); }, "Voxels (V, 4).")
      .def_prop_ro(
          "active_rows", [](const Quantization& q) { return mx::array(q.active_rows); },
          "V as an array (1,).")
      .def_prop_ro(
          "inverse_rows", [](const Quantization& q) { return private_copy(q.inverse_rows); },
          "The voxel of each point, (P,).")
      .def_prop_ro(
          "counts", [](const Quantization& q) { return mx::array(q.counts); },
          "Points of each voxel, (V,).")
      .def("__repr__", [](const Quantization& q) {
        return "SparseQuantization(" + std::to_string(q.inverse_rows.size()) + " points in " +
               std::to_string(q.coords.shape(0)) + " voxels)";
      });
  def_row_counts(c);
  nb::class_<PointVoxelMap> map(
      m, "PointVoxelMap",
      "Point p is the sum over slots c of weights[p, c] * voxel rows[p, c]; -1 = none.");
  def_init(
      map, [](Array rows, Array weights) { return PointVoxelMap{rows, weights}; }, "rows"_a,
      "weights"_a);
  map.def_prop_ro(
         "rows", [](const PointVoxelMap& p) { return mx::array(p.rows); }, "Voxel rows (P, 8).")
      .def_prop_ro(
          "weights", [](const PointVoxelMap& p) { return mx::array(p.weights); }, "(P, 8).")
      .def_prop_ro(
          "point_count", [](const PointVoxelMap& p) { return p.rows.ndim() ? p.rows.shape(0) : 0; },
          "The number of points; a name of the older package.");
}

void bind_voxelization(nb::module_& m) {
  def(
      m, "sparse_quantize",
      [](const Positions& points, Numbers voxel_size, const Optional& batch, Numbers origin,
         const Optional& active_rows, Stream s) {
        return sparse_quantize(points, options(voxel_size, origin, batch), active_rows, s);
      },
      "points"_a, "voxel_size"_a, "batch_indices"_a, "origin"_a, "active_rows"_a, "stream"_a,
      Unlocked());
  def(
      m, "voxelize",
      [](const Positions& points, Array feats, Numbers voxel_size, const Optional& batch,
         Numbers origin, const Optional& active_rows, Text reduction, const Triple& stride,
         Stream s) {
        const Reduction how = parse_reduction(reduction, "voxelize", "reduction");
        return voxelize(points, feats, options(voxel_size, origin, batch), active_rows, how, stride,
                        s);
      },
      "points"_a, "feats"_a, "voxel_size"_a, "batch_indices"_a, "origin"_a, "active_rows"_a,
      "reduction"_a, "stride"_a, "stream"_a, Unlocked());
  def(
      m, "voxelize_with_quantization",
      [](const SparseQuantization& quantization, Array feats, Text reduction, const Triple& stride,
         const std::optional<SparseTensor>& like, Stream s) {
        const Reduction how = parse_reduction(reduction, "voxelize_with_quantization", "reduction");
        return voxelize_with_quantization(quantization, feats, how, stride, like, s);
      },
      "quantization"_a, "feats"_a, "reduction"_a, "stride"_a, "template"_a, "stream"_a, Unlocked());
  def(
      m, "voxel_features",
      [](Array points, const std::vector<mx::array>& columns, double voxel, Stream s) {
        const VoxelScan scan = voxel_features(points, columns, voxel, s);
        return std::pair(scan.tensor, scan.rows);
      },
      "points"_a, "columns"_a, "voxel"_a, "stream"_a, Unlocked());
  def(
      m, "voxel_features_of_part",
      [](Array points, const std::vector<mx::array>& columns, double voxel, Numbers low,
         double ground, Stream s) {
        const VoxelScan scan =
            voxel_features(points, columns, voxel, s, ScanFrame{low, static_cast<float>(ground)});
        return std::pair(scan.tensor, scan.rows);
      },
      "points"_a, "columns"_a, "voxel"_a, "low"_a, "ground"_a, "stream"_a, Unlocked());
}

void bind_interpolation(nb::module_& m) {
  def(
      m, "build_point_voxel_map",
      [](const Positions& points, Array voxel_coords, const Optional& voxel_active_rows,
         Numbers voxel_size, const Optional& batch, Numbers origin, Text interpolation, Stream s) {
        const Interpolation how = parse_interpolation(interpolation, "build_point_voxel_map");
        return build_point_voxel_map(points, voxel_coords, voxel_active_rows,
                                     options(voxel_size, origin, batch), how, s);
      },
      "points"_a, "voxel_coords"_a, "voxel_active_rows"_a, "voxel_size"_a, "batch_indices"_a,
      "origin"_a, "interpolation"_a, "stream"_a, Unlocked());
  def(m, "interpolate_point_features", &interpolate_point_features, "voxel_feats"_a,
      "point_voxel_map"_a, "stream"_a, Unlocked());
  def(
      m, "devoxelize",
      [](const Positions& points, const SparseTensor& voxels, Numbers voxel_size,
         const Optional& batch, Numbers origin, Text interpolation, Stream s) {
        const Interpolation how = parse_interpolation(interpolation, "devoxelize");
        return devoxelize(points, voxels, options(voxel_size, origin, batch), how, s);
      },
      "points"_a, "voxels"_a, "voxel_size"_a, "batch_indices"_a, "origin"_a, "interpolation"_a,
      "stream"_a, Unlocked());
  def(
      m, "crop_points",
      [](Array points, Numbers low, Numbers high) { return crop_points(points, low, high); },
      "points"_a, "low"_a, "high"_a, Unlocked());
  def(m, "to_points", &to_points, "values"_a, "rows"_a, "fill"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_points(nb::module_& m) {
  bind_values(m);
  bind_voxelization(m);
  bind_interpolation(m);
}
