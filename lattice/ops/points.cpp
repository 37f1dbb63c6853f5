#include "lattice/ops/points.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/points.h"
#include "lattice/ops/geometry.h"
#include "lattice/ops/map_rows.h"
#include "lattice/ops/relations.h"

namespace lattice {
namespace {

using cpu::Buffer;

template <typename T>
const T* data(const mx::array& a) {
  return a.size() ? a.data<T>() : nullptr;
}

// f(the values of checked points), doubles or floats.
template <typename F>
void with_values(const mx::array& points, const F& f) {
  points.dtype() == mx::float64 ? f(data<double>(points)) : f(data<float>(points));
}

std::string text(double v) {
  std::ostringstream out;
  out << v;
  return out.str();
}

// In the precision of the points.
cpu::VoxelFrame frame_of(const PointOptions& options, const mx::array& points,
                         const std::string& op) {
  cpu::VoxelFrame frame{options.origin, options.voxel_size, 0};
  if (points.dtype() != mx::float64)
    for (auto* values : {&frame.origin, &frame.size})
      for (double& v : *values) v = static_cast<double>(static_cast<float>(v));
  for (double v : frame.size)
    if (!(v > 0) || !std::isfinite(v))
      fail(op, "voxel_size must be finite and > 0, got " + text(v));
  for (double v : frame.origin)
    if (!std::isfinite(v)) fail(op, "origin must be finite, got " + text(v));
  return frame;
}

// The points as values, float64 or float32.
mx::array checked_points(const mx::array& points, const std::string& op) {
  if (points.ndim() != 2 || points.shape(1) != 3)
    fail(op, "points must have shape (N, 3), got " + shape_text(points.shape()));
  if (points.dtype() == mx::float64) return evaluated(points, op, "points");
  if (!is_float(points.dtype()))
    fail(op, "points must be float64, float32, float16 or bfloat16, got " +
                 graph::dtype_name(points.dtype()));
  return evaluated(mx::astype(points, mx::float32, mx::Device::cpu), op, "points");
}

std::optional<mx::array> checked_batches(const std::optional<mx::array>& batches, int64_t n,
                                         const std::string& op) {
  if (!batches) return std::nullopt;
  if (batches->ndim() != 1 || batches->shape(0) != n)
    fail(op, "batch_indices must have shape (" + std::to_string(n) + ",), got " +
                 shape_text(batches->shape()));
  return checked_rows(*batches, std::numeric_limits<int32_t>::max(), op, "batch_indices");
}

// (N, 4) floor(q + shift).
Buffer<int32_t> voxels_of(const mx::array& points, const std::optional<mx::array>& batches,
                          const cpu::VoxelFrame& frame, const std::string& op) {
  const int64_t n = points.shape(0);
  Buffer<int32_t> coords(n * 4);
  with_values(points, [&](const auto* p) {
    const int64_t bad = cpu::quantize_points(p, n, batches ? data<int32_t>(*batches) : nullptr,
                                             frame, coords.data());
    if (bad >= 0)
      fail(op, "points must be finite and in a voxel whose index fits int32, got row " +
                   std::to_string(bad) + " = (" + text(p[bad * 3]) + ", " + text(p[bad * 3 + 1]) +
                   ", " + text(p[bad * 3 + 2]) + ")");
  });
  return coords;
}

// The voxels of points: all of them, one row per point, and the distinct ones.
struct Voxels {
  CoordinateSet all;
  cpu::Distinct distinct;
  mx::array coords;  // (M, 4)
  const int32_t* rows() const { return static_cast<const int32_t*>(all.span().data); }
};
Voxels distinct_voxels(Buffer<int32_t>&& coords, const std::string& op, mx::StreamOrDevice s) {
  const int n = static_cast<int>(coords.size() / 4);
  const CoordinateSet all(adopt(std::move(coords), {n, 4}), op);
  cpu::Distinct distinct = distinct_rows(all, s);
  const int64_t m = distinct.first.size();
  Buffer<int32_t> kept(m * 4);
  cpu::take_rows(all.span(), distinct.first.span(), kept.data());
  return {all, std::move(distinct), adopt(std::move(kept), {static_cast<int>(m), 4})};
}

SparseQuantization quantize(const mx::array& all_points, const PointOptions& options,
                            const std::optional<mx::array>& active_rows, const std::string& op,
                            mx::StreamOrDevice s) {
  const cpu::VoxelFrame frame = frame_of(options, all_points, op);
  mx::array points = checked_points(all_points, op);
  auto batches = checked_batches(options.batch_indices, points.shape(0), op);
  if (active_rows) {
    points = evaluated(keep_active(points, active_rows, op), op, "points");
    if (batches)
      batches = evaluated(mx::slice(*batches, {0}, {points.shape(0)}), op, "batch_indices");
  }
  Voxels voxels = distinct_voxels(voxels_of(points, batches, frame, op), op, s);
  cpu::Groups groups = cpu::group_rows(*voxels.all.index(), voxels.distinct);
  const int m = voxels.coords.shape(0), n = points.shape(0);
  Buffer<int32_t> counts(m);
  for (int64_t v = 0; v < m; ++v) counts[v] = groups.offsets[v + 1] - groups.offsets[v];
  auto points_of_voxel = RowMap::make({n, m, adopt(std::move(groups.rows), {n}),
                                       adopt(std::move(groups.offsets), {m + 1}), std::nullopt});
  return {voxels.coords, adopt(std::move(voxels.distinct.inverse), {n}),
          adopt(std::move(counts), {m}), std::move(points_of_voxel)};
}

mx::array reduced(const SparseQuantization& quantization, const mx::array& feats,
                  Reduction reduction, const std::string& op, mx::StreamOrDevice s) {
  const RowMap::Ptr& sum = quantization.points_of_voxel();
  return map_rows(feats, reduction == Reduction::sum ? sum : sum->with(reduction), op, "feats", s);
}

}  // namespace

SparseQuantization sparse_quantize(const mx::array& points, const PointOptions& options,
                                   const std::optional<mx::array>& active_rows,
                                   mx::StreamOrDevice s) {
  return quantize(points, options, active_rows, "sparse_quantize", s);
}

SparseTensor voxelize(const mx::array& points, const mx::array& feats, const PointOptions& options,
                      const std::optional<mx::array>& active_rows, Reduction reduction,
                      const Triple& stride, mx::StreamOrDevice s) {
  if (feats.ndim() != 2 || (points.ndim() == 2 && feats.shape(0) != points.shape(0)))
    fail("voxelize", "feats must have shape (" +
                         std::to_string(points.ndim() ? points.shape(0) : 0) + ", C), got " +
                         shape_text(feats.shape()));
  const SparseQuantization quantization = quantize(points, options, active_rows, "voxelize", s);
  const int n = static_cast<int>(quantization.inverse_rows.size());
  const mx::array kept =
      n == feats.shape(0) ? feats : mx::slice(feats, {0, 0}, {n, feats.shape(1)}, s);
  return SparseTensor(quantization.coords, reduced(quantization, kept, reduction, "voxelize", s),
                      stride);
}

SparseTensor voxelize_with_quantization(const SparseQuantization& quantization,
                                        const mx::array& feats, Reduction reduction,
                                        const Triple& stride,
                                        const std::optional<SparseTensor>& like,
                                        mx::StreamOrDevice s) {
  constexpr const char* kOperation = "voxelize_with_quantization";
  mx::array values = reduced(quantization, feats, reduction, kOperation, s);
  if (!like) return SparseTensor(quantization.coords, values, stride);
  const mx::array coords = evaluated(quantization.coords, kOperation, "quantization.coords");
  const cpu::CoordSpan own = like->coordinate_set().span();
  if (own.is64 || own.rows != coords.shape(0) ||
      (own.rows > 0 &&
       std::memcmp(own.data, coords.data<int32_t>(), static_cast<size_t>(own.rows) * 16) != 0))
    fail("voxelize_with_quantization",
         "template must have the coordinates of the quantization, "
         "found " +
             std::to_string(own.rows) + " other rows");
  return like->with_feats(values);
}

Interpolation parse_interpolation(std::string_view name, std::string_view operation) {
  if (name == "linear") return Interpolation::linear;
  if (name == "nearest") return Interpolation::nearest;
  fail(operation, "interpolation must be linear or nearest, got '" + std::string(name) + "'");
}

namespace {

PointVoxelMap make_map(const mx::array& given, const CoordinateSet& voxels,
                       const PointOptions& options, Interpolation interpolation,
                       const std::string& op, mx::StreamOrDevice s) {
  if (voxels.dtype() != mx::int32)
    fail(op, "voxel_coords must be int32, got " + graph::dtype_name(voxels.dtype()));
  const mx::array points = checked_points(given, op);
  cpu::VoxelFrame frame = frame_of(options, points, op);
  const auto batches = checked_batches(options.batch_indices, points.shape(0), op);
  const bool nearest = interpolation == Interpolation::nearest;
  if (nearest) frame.shift = 0.5;
  const int64_t n = points.shape(0);
  if (n > std::numeric_limits<int32_t>::max() / 8)
    fail(op, "points must have fewer than 2^28 rows, got " + std::to_string(n));
  Buffer<int32_t> coords = voxels_of(points, batches, frame, op);
  Buffer<int32_t> rows(n * 8);
  Buffer<float> weights(n * 8);
  if (nearest) {
    std::fill(rows.begin(), rows.end(), -1);
    std::fill(weights.begin(), weights.end(), 0.0f);
    voxels.unique_index(op);  // throws for duplicates
    const mx::array cells = adopt(std::move(coords), {static_cast<int>(n), 4});
    const Buffer<int32_t> found = find_rows(voxels, CoordinateSet(cells, op), s);
    for (int64_t p = 0; p < n; ++p)
      if (found[p] >= 0) rows[p * 8] = found[p], weights[p * 8] = 1.0f;
  } else {
    const Voxels cells = distinct_voxels(std::move(coords), op, s);
    const KernelSpec corners({2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1});
    const Relation::Ptr around = relation_builder(s)(RelationKind::target, voxels, corners,
                                                     CoordinateSet(cells.coords, op), op);
    with_values(points, [&](const auto* values) {
      cpu::linear_weights(values, n, frame, cells.rows(), cells.distinct.inverse.data(),
                          data<int32_t>(around->implicit_gemm().out_in_map), rows.data(),
                          weights.data());
    });
  }
  const int p = static_cast<int>(n);
  return {adopt(std::move(rows), {p, 8}), adopt(std::move(weights), {p, 8})};
}

}  // namespace

PointVoxelMap build_point_voxel_map(const mx::array& points, const mx::array& voxel_coords,
                                    const std::optional<mx::array>& voxel_active_rows,
                                    const PointOptions& options, Interpolation interpolation,
                                    mx::StreamOrDevice s) {
  constexpr const char* kOperation = "build_point_voxel_map";
  if (voxel_coords.ndim() != 2) CoordinateSet(voxel_coords, kOperation, "voxel_coords");  // throws
  const CoordinateSet voxels(keep_active(voxel_coords, voxel_active_rows, kOperation), kOperation,
                             "voxel_coords");
  return make_map(points, voxels, options, interpolation, kOperation, s);
}

mx::array interpolate_point_features(const mx::array& voxel_feats, const PointVoxelMap& map,
                                     mx::StreamOrDevice s) {
  constexpr const char* kOperation = "interpolate_point_features";
  if (voxel_feats.ndim() != 2)
    fail("interpolate_point_features",
         "voxel_feats must have shape (M, C), got " + shape_text(voxel_feats.shape()));
  return map_rows(voxel_feats, map.map(voxel_feats.shape(0), kOperation), kOperation, "voxel_feats",
                  s);
}

mx::array devoxelize(const mx::array& points, const SparseTensor& voxels,
                     const PointOptions& options, Interpolation interpolation,
                     mx::StreamOrDevice s) {
  const PointVoxelMap map =
      make_map(points, voxels.coordinate_set(), options, interpolation, "devoxelize", s);
  return map_rows(voxels.feats(), map.map(voxels.capacity(), "devoxelize"), "devoxelize", "voxels",
                  s);
}

}  // namespace lattice
