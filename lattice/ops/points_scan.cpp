#include "lattice/ops/points_scan.h"

#include <mlx/ops.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/scan_features.h"
#include "lattice/ops/points.h"

namespace lattice {
namespace {

using cpu::Buffer;

// float64 as it is, everything else as float32; evaluated.
mx::array checked_cloud(const mx::array& points, const char* op) {
  if (points.ndim() != 2 || points.shape(1) != 3)
    fail(op, "points must have shape (N, 3), got " + shape_text(points.shape()));
  if (points.dtype() != mx::float64 && !is_float(points.dtype()))
    fail(op, "points must be float32 or float64, got " + graph::dtype_name(points.dtype()));
  const mx::Dtype kept = points.dtype() == mx::float64 ? mx::float64 : mx::float32;
  return evaluated(mx::astype(points, kept, mx::Device::cpu), op, "points");
}

template <typename F>
auto visit_points(const mx::array& points, const F& f) {
  if (points.dtype() == mx::float64) return f(points.size() ? points.data<double>() : nullptr);
  return f(points.size() ? points.data<float>() : nullptr);
}

// (N, k) values between 0 and 1 of 8-bit and 16-bit columns, other values as they are.
mx::array scaled_column(const mx::array& column, int rows) {
  constexpr const char* kOperation = "voxel_features";
  if (column.ndim() < 1 || column.ndim() > 2 || column.shape(0) != rows)
    fail(kOperation, "columns must have " + std::to_string(rows) +
                         " rows, one or several values each, got " + shape_text(column.shape()));
  const mx::Dtype dtype = column.dtype();
  if (dtype == mx::complex64) fail(kOperation, "columns must be real numbers, got complex64");
  const int width = column.ndim() == 2 ? column.shape(1) : 1;
  mx::array values = mx::reshape(column, {rows, width}, mx::Device::cpu);
  if (!is_float(dtype)) {  // integers are exact in float64, and the quotient is rounded once more
    values = mx::astype(values, mx::float64, mx::Device::cpu);
    const double scale = dtype == mx::uint8 ? 255.0 : dtype == mx::uint16 ? 65535.0 : 1.0;
    if (scale != 1.0) values = mx::divide(values, mx::array(scale, mx::float64), mx::Device::cpu);
  }
  return evaluated(mx::astype(values, mx::float32, mx::Device::cpu), kOperation, "columns");
}

// Columns behind the first four numbers of each row of the table.
void copy_columns(const std::vector<mx::array>& columns, std::span<const int32_t> rows,
                  int64_t width, float* table) {
  int64_t at = 4;
  for (const mx::array& column : columns) {
    const int64_t k = column.shape(1);
    const float* values = column.size() ? column.data<float>() : nullptr;
    for (size_t j = 0; j < rows.size(); ++j)
      std::copy_n(values + rows[j] * k, k, table + static_cast<int64_t>(j) * width + at);
    at += k;
  }
}

}  // namespace

mx::array crop_points(const mx::array& given, const std::array<double, 3>& low,
                      const std::array<double, 3>& high) {
  const mx::array points = checked_cloud(given, "crop_points");
  for (int axis = 0; axis < 3; ++axis)
    if (!(low[axis] <= high[axis])) {
      std::ostringstream found;
      found << "low must not be above high, got " << low[axis] << " and " << high[axis]
            << " on axis " << axis;
      fail("crop_points", found.str());
    }
  return visit_points(points, [&](const auto* p) {
    using T = std::remove_cvref_t<decltype(*p)>;
    Buffer<T> out(points.size());
    for (int64_t r = 0; r < points.shape(0); ++r) {
      bool inside = true;
      for (int axis = 0; axis < 3; ++axis)
        inside = inside && p[r * 3 + axis] >= low[axis] && p[r * 3 + axis] <= high[axis];
      for (int axis = 0; axis < 3; ++axis)
        out[r * 3 + axis] = inside ? p[r * 3 + axis] : std::numeric_limits<T>::quiet_NaN();
    }
    return adopt(std::move(out), points.shape());
  });
}

VoxelScan voxel_features(const mx::array& given, const std::vector<mx::array>& given_columns,
                         double voxel, mx::StreamOrDevice s,
                         const std::optional<ScanFrame>& frame) {
  const mx::array points = checked_cloud(given, "voxel_features");
  const auto side = static_cast<float>(voxel);
  if (!(side > 0) || !std::isfinite(side)) {
    std::ostringstream found;
    found << "voxel must be finite and > 0, got " << voxel;
    fail("voxel_features", found.str());
  }
  const int n = points.shape(0);
  std::vector<mx::array> columns;
  int64_t width = 4;
  for (const mx::array& column : given_columns) {
    columns.push_back(scaled_column(column, n));
    width += columns.back().shape(1);
  }
  const Buffer<int32_t> kept =
      visit_points(points, [&](const auto* p) { return cpu::finite_rows(p, n); });
  const int m = static_cast<int>(kept.size());
  Buffer<float> local(int64_t{m} * 3);
  visit_points(points, [&](const auto* p) {
    cpu::local_points(p, kept.span(), frame ? frame->low : cpu::low_corner(p, kept.span()),
                      local.data());
  });
  Buffer<float> table(m * width);
  cpu::scan_table(local.data(), m, side, width, table.data(), frame ? &frame->ground : nullptr);
  copy_columns(columns, kept.span(), width, table.data());
  const SparseQuantization q =
      sparse_quantize(adopt(std::move(local), {m, 3}), {{side, side, side}, {0, 0, 0}, {}}, {}, s);
  const int w = static_cast<int>(width), voxels = q.coords.shape(0);
  const SparseTensor means = voxelize_with_quantization(q, adopt(std::move(table), {m, w}),
                                                        Reduction::mean, {1, 1, 1}, {}, s);
  const mx::array mean = evaluated(means.feats(), "voxel_features", "columns");
  const mx::array counts = evaluated(q.counts, "voxel_features", "points");
  Buffer<float> feats(int64_t{voxels} * (w + 2));
  if (voxels)
    cpu::scan_features(mean.data<float>(), counts.data<int32_t>(), voxels, w, feats.data());
  Buffer<int32_t> rows(n);
  std::fill(rows.begin(), rows.end(), -1);
  const int32_t* voxel_of = m ? q.inverse_rows.data<int32_t>() : nullptr;
  for (int j = 0; j < m; ++j) rows[kept[j]] = voxel_of[j];
  return {SparseTensor(q.coords, adopt(std::move(feats), {voxels, w + 2})), adopt(std::move(rows))};
}

mx::array to_points(const mx::array& values, const mx::array& rows, double fill,
                    mx::StreamOrDevice s) {
  if (values.ndim() < 1)
    fail("to_points", "values must have one row per voxel, got a single number");
  const mx::array from =
      checked_rows(rows, values.shape(0), "to_points", "rows", std::numeric_limits<int32_t>::min());
  mx::Shape shape = values.shape();
  shape[0] = from.shape(0);
  const mx::array filler = mx::full(shape, fill, values.dtype(), s);
  if (!values.size() || !from.size()) return filler;
  mx::Shape mask(values.ndim(), 1);
  mask[0] = from.shape(0);
  const mx::array taken = mx::take(values, mx::maximum(from, mx::array(0), s), 0, s);
  return mx::where(mx::reshape(mx::greater_equal(from, mx::array(0), s), mask, s), taken, filler,
                   s);
}

}  // namespace lattice
