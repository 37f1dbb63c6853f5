#include "lattice/ops/boxes.h"

#include <mlx/ops.h>

#include <cmath>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/boxes.h"

namespace lattice {
namespace {

void check_float(const mx::array& a, const char* operation, const char* what) {
  if (!is_float(a.dtype()) && a.dtype() != mx::float64)
    fail(operation, std::string(what) + " must be float32, float16, bfloat16 or float64, got " +
                        graph::dtype_name(a.dtype()));
}

// Rows of seven float64 values.
mx::array checked_boxes(const mx::array& a, const char* operation, const char* what) {
  if (a.ndim() != 2 || a.shape(1) < 7)
    fail(operation, std::string(what) +
                        " must have shape (N, 7): x, y, z, dx, dy, dz, heading; got " +
                        shape_text(a.shape()));
  check_float(a, operation, what);
  const mx::array seven = mx::slice(a, {0, 0}, {a.shape(0), 7}, mx::Device::cpu);
  mx::array out = evaluated(mx::astype(seven, mx::float64, mx::Device::cpu), operation, what);
  const double* values = out.size() ? out.data<double>() : nullptr;
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const std::string where = " in row " + std::to_string(i / 7);
    if (!std::isfinite(values[i]))
      fail(operation, std::string(what) + " must be finite, got " + std::to_string(values[i]) +
                          where + "; drop such boxes before");
    if (i % 7 >= 3 && i % 7 < 6 && values[i] < 0)
      fail(operation,
           std::string(what) + " must have sizes >= 0, got " + std::to_string(values[i]) + where);
  }
  return out;
}

cpu::BoxOverlap overlap_kind(std::string_view kind, const char* operation) {
  if (kind == "bev") return cpu::BoxOverlap::bev;
  if (kind == "3d") return cpu::BoxOverlap::volume;
  if (kind == "upright") return cpu::BoxOverlap::upright;
  if (kind == "area") return cpu::BoxOverlap::area;
  fail(operation,
       "kind must be \"bev\", \"3d\", \"upright\" or \"area\", got \"" + std::string(kind) + "\"");
}

cpu::Suppression suppression_kind(std::string_view kind) {
  if (kind == "rotated") return cpu::Suppression::rotated;
  if (kind == "upright") return cpu::Suppression::upright;
  if (kind == "circle") return cpu::Suppression::circle;
  fail("nms",
       "kind must be \"rotated\", \"upright\" or \"circle\", got \"" + std::string(kind) + "\"");
}

mx::array result(cpu::Buffer<double>&& values, mx::Shape shape, const mx::array& a,
                 const mx::array& b) {
  const mx::array out = adopt(std::move(values), std::move(shape), mx::float64);
  if (a.dtype() == mx::float64 || b.dtype() == mx::float64) return out;
  return evaluated(mx::astype(out, mx::float32, mx::Device::cpu), "box_overlap", "result");
}

const double* values_of(const mx::array& a) { return a.size() ? a.data<double>() : nullptr; }

}  // namespace

mx::array box_overlap(const mx::array& a, const mx::array& b, std::string_view kind) {
  constexpr const char* kName = "box_overlap";
  const cpu::BoxOverlap which = overlap_kind(kind, kName);
  const mx::array p = checked_boxes(a, kName, "a"), q = checked_boxes(b, kName, "b");
  const int64_t n = p.shape(0), m = q.shape(0);
  cpu::Buffer<double> out(n * m);
  cpu::overlap_matrix(values_of(p), n, values_of(q), m, which, out.data());
  return result(std::move(out), {p.shape(0), q.shape(0)}, a, b);
}

mx::array box_overlap_pairs(const mx::array& a, const mx::array& b, std::string_view kind) {
  constexpr const char* kName = "box_overlap_pairs";
  const cpu::BoxOverlap which = overlap_kind(kind, kName);
  const mx::array p = checked_boxes(a, kName, "a"), q = checked_boxes(b, kName, "b");
  if (p.shape(0) != q.shape(0))
    fail(kName, "a and b must have equally many rows, got " + std::to_string(p.shape(0)) + " and " +
                    std::to_string(q.shape(0)) + "; box_overlap compares all pairs");
  cpu::Buffer<double> out(p.shape(0));
  cpu::overlap_pairs(values_of(p), values_of(q), p.shape(0), which, out.data());
  return result(std::move(out), {p.shape(0)}, a, b);
}

mx::array nms(const mx::array& boxes, const mx::array& scores, double threshold,
              std::string_view kind, int64_t pre, int64_t post) {
  constexpr const char* kName = "nms";
  const cpu::Suppression which = suppression_kind(kind);
  const mx::array rows = checked_boxes(boxes, kName, "boxes");
  check_float(scores, kName, "scores");
  if (scores.ndim() != 1 || scores.shape(0) != rows.shape(0))
    fail(kName, "scores must have shape (" + std::to_string(rows.shape(0)) +
                    ",), one for each box, got " + shape_text(scores.shape()));
  if (std::isnan(threshold)) fail(kName, "threshold must be a number, got NaN");
  const mx::array s = evaluated(mx::astype(scores, mx::float32, mx::Device::cpu), kName, "scores");
  const float* values = s.size() ? s.data<float>() : nullptr;
  for (int64_t i = 0; i < static_cast<int64_t>(s.size()); ++i)
    if (std::isnan(values[i]))
      fail(kName, "scores must be numbers, got NaN in row " + std::to_string(i));
  cpu::Buffer<int32_t> kept =
      cpu::suppress(values_of(rows), values, rows.shape(0), threshold, which, pre, post);
  const int n = static_cast<int>(kept.size());
  return adopt(std::move(kept), {n});
}

mx::array points_in_boxes(const mx::array& points, const mx::array& boxes) {
  constexpr const char* kName = "points_in_boxes";
  if (points.ndim() != 2 || points.shape(1) != 3)
    fail(kName, "points must have shape (N, 3), got " + shape_text(points.shape()));
  check_float(points, kName, "points");
  const mx::array rows = checked_boxes(boxes, kName, "boxes");
  const mx::array p = evaluated(mx::astype(points, mx::float32, mx::Device::cpu), kName, "points");
  cpu::Buffer<int32_t> owner(p.shape(0));
  cpu::points_in_boxes(p.size() ? p.data<float>() : nullptr, p.shape(0), values_of(rows),
                       rows.shape(0), owner.data());
  const int n = p.shape(0);
  return adopt(std::move(owner), {n});
}

}  // namespace lattice
