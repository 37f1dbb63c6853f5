#include "lattice/ops/registration.h"

#include <mlx/linalg.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/ops/neighbors.h"
#include "lattice/ops/surface.h"

namespace lattice {
namespace {

using Three = std::array<double, 3>;
using Six = std::array<double, 6>;
using Matrix6 = std::array<Six, 6>;

Three minus(const Three& a, const Three& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Three cross(const Three& a, const Three& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}
double dot(const Three& a, const Three& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// The points, checked to be finite.
std::vector<Three> finite_points(const Column& points, const char* operation, const char* what) {
  if (points.rows > INT32_MAX)
    fail(operation, std::string(what) + " has more than 2^31 - 1 points");
  std::vector<Three> made(static_cast<size_t>(points.rows));
  for (int64_t r = 0; r < points.rows; ++r)
    for (int j = 0; j < 3; ++j) {
      made[r][j] = points.at(r, j);
      if (!std::isfinite(made[r][j]))
        fail(operation, std::string(what) + ": row " + std::to_string(r) + " is not finite");
    }
  return made;
}

Three mean_of(const std::vector<Three>& points) {
  Three sum{};
  for (const Three& p : points)
    for (int j = 0; j < 3; ++j) sum[j] += p[j];
  for (double& v : sum) v /= std::max<double>(1, static_cast<double>(points.size()));
  return sum;
}

// (N, 3) float32 relative to the middle, subtracted in float64.
mx::array near(const std::vector<Three>& points, const Three& middle) {
  const auto n = static_cast<int>(points.size());
  cpu::Buffer<float> made(int64_t{n} * 3);
  for (int r = 0; r < n; ++r)
    for (int j = 0; j < 3; ++j)
      made[int64_t{r} * 3 + j] = static_cast<float>(points[r][j] - middle[j]);
  return adopt(std::move(made), {n, 3});
}

// p -> rotation p + translation.
struct Motion {
  std::array<Three, 3> rotation{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
  Three translation{};

  Three turned(const Three& p) const {
    return {dot(rotation[0], p), dot(rotation[1], p), dot(rotation[2], p)};
  }
  Three operator()(const Three& p) const {
    const Three t = turned(p);
    return {t[0] + translation[0], t[1] + translation[1], t[2] + translation[2]};
  }
  // First the other, then this one.
  Motion after(const Motion& other) const {
    Motion made;
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j) {
        made.rotation[i][j] = 0;
        for (int k = 0; k < 3; ++k) made.rotation[i][j] += rotation[i][k] * other.rotation[k][j];
      }
    made.translation = (*this)(other.translation);
    return made;
  }
};

// Of a rotation vector and a translation (Rodrigues).
Motion motion_of(const Six& x) {
  const Three w{x[0], x[1], x[2]};
  const double angle = std::sqrt(dot(w, w));
  const double first = angle > 1e-12 ? std::sin(angle) / angle : 1;
  const double second = angle > 1e-12 ? (1 - std::cos(angle)) / (angle * angle) : 0;
  Motion made;
  for (int j = 0; j < 3; ++j) {
    Three axis{};
    axis[j] = 1;
    const Three once = cross(w, axis), twice = cross(w, once);
    for (int i = 0; i < 3; ++i) made.rotation[i][j] += first * once[i] + second * twice[i];
  }
  made.translation = {x[3], x[4], x[5]};
  return made;
}

// J^T J and J^T r of rows [p x n, n], one for each pair.
struct Equations {
  Matrix6 matrix{};
  Six right{};
  double residuals = 0, sizes = 0;  // sums of squares
  int64_t pairs = 0;

  void add(const Three& p, const Three& q, const Three& n) {
    const Three turn = cross(p, n);
    const Six row{turn[0], turn[1], turn[2], n[0], n[1], n[2]};
    const double residual = dot(minus(p, q), n);
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j <= i; ++j) matrix[i][j] += row[i] * row[j];
      right[i] += row[i] * residual;
    }
    residuals += residual * residual;
    sizes += dot(p, p);
    ++pairs;
  }
  // (J^T J)^-1. Throws where a motion is open.
  Matrix6 inverse() const;
};

Matrix6 Equations::inverse() const {
  // Rotations count as much as translations.
  const double size = std::max(std::sqrt(sizes / static_cast<double>(pairs)), 1e-30);
  const Six equal{1 / size, 1 / size, 1 / size, 1, 1, 1};
  std::array<double, 36> scaled;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j)
      scaled[i * 6 + j] = equal[i] * matrix[std::max(i, j)][std::min(i, j)] * equal[j];
  const auto [values, vectors] = mx::linalg::eigh(mx::array(scaled.begin(), {6, 6}, mx::float64),
                                                  "L", mx::Device(mx::Device::cpu));
  const mx::array held = evaluated(values, "icp", "matrix"), turned = evaluated(vectors, "icp", "");
  const double *value = held.data<double>(), *vector = turned.data<double>();
  if (!(value[0] > 1e-12 * value[5])) {
    std::string slack;
    for (int i = 0; i < 6; ++i) {
      char text[32];
      std::snprintf(text, sizeof(text), "%s%.3g", i ? ", " : "", vector[i * 6]);
      slack += text;
    }
    fail("icp", "the target leaves a motion open (rotation, translation) = [" + slack +
                    "]; its normals must point in three directions");
  }
  Matrix6 made{};
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j)
      for (int v = 0; v < 6; ++v)
        made[i][j] += equal[i] * vector[i * 6 + v] / value[v] * vector[j * 6 + v] * equal[j];
  return made;
}

std::vector<Three> normals_of(const mx::array& points, const IcpOptions& options) {
  const int64_t n = points.shape(0);
  std::vector<Three> made(static_cast<size_t>(n));
  if (options.normals) {
    const Column& given = *options.normals;
    if (given.rows != n || given.width != 3)
      fail("icp", "normals: found shape (" + std::to_string(given.rows) + ", " +
                      std::to_string(given.width) + "), expected (" + std::to_string(n) + ", 3)");
    for (int64_t r = 0; r < n; ++r)
      for (int j = 0; j < 3; ++j) made[r][j] = given.at(r, j);
    return made;
  }
  const mx::array found = evaluated(estimate_normals(points, options.k).first, "icp", "normals");
  for (int64_t r = 0; r < n; ++r)
    for (int j = 0; j < 3; ++j) made[r][j] = found.data<float>()[r * 3 + j];
  return made;
}

void check(const IcpOptions& options) {
  const auto positive = [](const char* name, double value) {
    if (!(value > 0) || !std::isfinite(value))
      fail("icp",
           std::string(name) + " must be above 0 and finite, found " + std::to_string(value));
  };
  positive("reach", options.reach);
  positive("tolerance", options.tolerance);
  if (options.steps < 1) fail("icp", "steps must be >= 1, found " + std::to_string(options.steps));
  if (options.pose)
    for (const double value : *options.pose)
      if (!std::isfinite(value)) fail("icp", "pose: a value is not finite");
}

Motion start_of(const IcpOptions& options) {
  Motion motion;
  if (!options.pose) return motion;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) motion.rotation[i][j] = (*options.pose)[i * 4 + j];
    motion.translation[i] = (*options.pose)[i * 4 + 3];
  }
  return motion;
}

// M (J^T J)^-1 M^T s^2: from a motion about the middle to one about the origin.
std::array<double, 36> covariance_of(const Matrix6& inverse, const Three& middle, double scale) {
  Matrix6 change{};
  for (int i = 0; i < 6; ++i) change[i][i] = 1;
  for (int j = 0; j < 3; ++j) {
    Three axis{};
    axis[j] = 1;
    const Three moved = cross(middle, axis);
    for (int i = 0; i < 3; ++i) change[3 + i][j] = moved[i];
  }
  std::array<double, 36> made{};
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j)
      for (int a = 0; a < 6; ++a)
        for (int b = 0; b < 6; ++b)
          made[i * 6 + j] += scale * change[i][a] * inverse[a][b] * change[j][b];
  return made;
}

}  // namespace

std::vector<uint8_t> statistical_inliers(const Cloud& cloud, int64_t k, double ratio) {
  constexpr const char* kName = "statistical_inliers";
  const std::vector<Three> points = finite_points(cloud.points(), kName, "points");
  const auto n = static_cast<int64_t>(points.size()), most = std::max<int64_t>(n - 1, 1);
  if (k < 1 || k > most)
    fail(kName, "k must be at " + std::string(k < 1 ? "least 1" : "most " + std::to_string(most)) +
                    ", found " + std::to_string(k));
  if (!(ratio > 0) || !std::isfinite(ratio))
    fail(kName, "ratio must be above 0 and finite, found " + std::to_string(ratio));
  std::vector<uint8_t> keep(points.size(), 1);
  if (n < 2) return keep;
  const auto found = knn_rows(near(points, mean_of(points)), k + 1);  // the point itself is first
  const mx::array d2 = evaluated(found.second, kName, "points");
  std::vector<double> means(points.size());
  double sum = 0, squares = 0;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t j = 1; j <= k; ++j)
      means[r] += std::sqrt(static_cast<double>(d2.data<float>()[r * (k + 1) + j]));
    means[r] /= static_cast<double>(k);
    sum += means[r];
  }
  const double mean = sum / static_cast<double>(n);
  for (const double value : means) squares += (value - mean) * (value - mean);
  const double limit = mean + ratio * std::sqrt(squares / static_cast<double>(n - 1));
  for (int64_t r = 0; r < n; ++r) keep[r] = means[r] <= limit;
  return keep;
}

std::vector<uint8_t> radius_inliers(const Cloud& cloud, double radius, int64_t least) {
  constexpr const char* kName = "radius_inliers";
  const std::vector<Three> points = finite_points(cloud.points(), kName, "points");
  if (least < 1 || least >= INT32_MAX)
    fail(kName, "least must be >= 1 and below 2^31, found " + std::to_string(least));
  if (!(radius >= 0) || !std::isfinite(radius))
    fail(kName, "radius must be at least 0 and finite, found " + std::to_string(radius));
  std::vector<uint8_t> keep(points.size());
  if (points.empty()) return keep;
  const NeighborRows rows{near(points, mean_of(points)), {}, {}, {}};
  const auto found = build_radius_relation(rows, static_cast<float>(radius), least + 1);
  const int32_t* offsets = found->row_offsets().data<int32_t>();
  for (size_t r = 0; r < keep.size(); ++r) keep[r] = offsets[r + 1] - offsets[r] > least;
  return keep;
}

Registration icp(const Cloud& source, const Cloud& target, const IcpOptions& options) {
  check(options);
  const std::vector<Three> given = finite_points(source.points(), "icp", "source");
  const std::vector<Three> points = finite_points(target.points(), "icp", "target");
  // About the middle of the target: there rotations and translations have one scale, and float32
  // is exact enough for the search.
  const Three middle = mean_of(points);
  const mx::array local = near(points, middle);
  const std::vector<Three> normals = normals_of(local, options);
  const NeighborIndex index(local, std::nullopt, "icp", "target");
  Motion motion = start_of(options);
  motion.translation = minus(motion(middle), middle);
  Registration made;
  Equations sums;
  Matrix6 inverse{};
  while (made.steps < options.steps && !made.converged) {
    ++made.steps;
    std::vector<Three> moved(given.size());
    for (size_t i = 0; i < given.size(); ++i) moved[i] = motion(minus(given[i], middle));
    const auto found = index.knn(1, near(moved, {}), std::nullopt, "icp");
    const int32_t* offsets = found->row_offsets().data<int32_t>();
    sums = {};
    for (size_t i = 0; i < moved.size(); ++i)
      for (int32_t e = offsets[i]; e < offsets[i + 1]; ++e) {
        if (!(found->distances().data<float>()[e] <= options.reach * options.reach)) continue;
        const int32_t row = found->source_rows().data<int32_t>()[e];
        sums.add(moved[i], minus(points[row], middle), normals[row]);
      }
    if (sums.pairs < 6) {
      char reach[32];
      std::snprintf(reach, sizeof(reach), "%g", options.reach);
      fail("icp", std::to_string(sums.pairs) + " pairs within reach = " + reach +
                      ", expected 6 or more; give a larger reach or a better pose");
    }
    inverse = sums.inverse();
    Six x{};
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) x[i] -= inverse[i][j] * sums.right[j];
    motion = motion_of(x).after(motion);
    made.converged = std::hypot(x[0], x[1], x[2]) < options.tolerance &&
                     std::hypot(x[3], x[4], x[5]) < options.tolerance;
  }
  const auto pairs = static_cast<double>(sums.pairs);
  made.pairs = sums.pairs;
  made.rms = std::sqrt(sums.residuals / pairs);
  made.covariance = covariance_of(inverse, middle, sums.residuals / std::max(pairs - 6, 1.0));
  const Three turned = motion.turned(middle);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) made.pose[i * 4 + j] = motion.rotation[i][j];
    made.pose[i * 4 + 3] = motion.translation[i] + middle[i] - turned[i];
    made.pose[12 + i] = 0;
  }
  made.pose[15] = 1;
  return made;
}

}  // namespace lattice
