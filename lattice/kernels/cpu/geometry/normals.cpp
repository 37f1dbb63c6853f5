#include "lattice/kernels/cpu/geometry/normals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lattice/kernels/cpu/base/chunks.h"

namespace lattice::cpu {
namespace {

// The covariance of rows, around the first of them: float32 points of a map keep their digits.
std::array<double, 6> covariance(const float* points, const int32_t* rows, int64_t m) {
  const float* origin = points + int64_t{rows[0]} * 3;
  double sx = 0, sy = 0, sz = 0, xx = 0, xy = 0, xz = 0, yy = 0, yz = 0, zz = 0;
  for (int64_t i = 0; i < m; ++i) {
    const float* p = points + int64_t{rows[i]} * 3;
    const double x = double{p[0]} - origin[0], y = double{p[1]} - origin[1],
                 z = double{p[2]} - origin[2];
    sx += x, sy += y, sz += z;
    xx += x * x, xy += x * y, xz += x * z, yy += y * y, yz += y * z, zz += z * z;
  }
  const double k = 1.0 / static_cast<double>(m);
  sx *= k, sy *= k, sz *= k;
  return {xx * k - sx * sx, xy * k - sx * sy, xz * k - sx * sz,
          yy * k - sy * sy, yz * k - sy * sz, zz * k - sz * sz};
}

struct Least {
  std::array<double, 3> vector;
  double value;
};

// The smallest eigenvalue and its vector: the value in closed form (Smith, "Eigenvalues of a
// symmetric 3 x 3 matrix", 1961), the vector as the longest cross product of two rows of A - l I,
// then the value again as v^T A v. Where two values are close the rows are nearly parallel, and
// Jacobi rotations decide. This takes a quarter of the time of rotations alone.
Least least_axis(const std::array<double, 6>& m) {
  const double third = (m[0] + m[3] + m[5]) / 3;
  const double a = m[0] - third, b = m[3] - third, c = m[5] - third;
  const double off = m[1] * m[1] + m[2] * m[2] + m[4] * m[4];
  const double p = std::sqrt((a * a + b * b + c * c + 2 * off) / 6);
  if (p > 1e-14 * std::abs(third)) {
    const double det = a * (b * c - m[4] * m[4]) - m[1] * (m[1] * c - m[4] * m[2]) +
                       m[2] * (m[1] * m[4] - b * m[2]);
    const double half = std::clamp(det / (2 * p * p * p), -1.0, 1.0);
    constexpr double kThirdTurn = 2.0943951023931953;
    const double value = third + 2 * p * std::cos(std::acos(half) / 3 + kThirdTurn);
    const double rows[3][3] = {
        {m[0] - value, m[1], m[2]}, {m[1], m[3] - value, m[4]}, {m[2], m[4], m[5] - value}};
    std::array<double, 3> best{};
    double longest = 0;
    for (const auto& [i, j] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
      const std::array<double, 3> v{rows[i][1] * rows[j][2] - rows[i][2] * rows[j][1],
                                    rows[i][2] * rows[j][0] - rows[i][0] * rows[j][2],
                                    rows[i][0] * rows[j][1] - rows[i][1] * rows[j][0]};
      const double length = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
      if (length > longest) longest = length, best = v;
    }
    if (longest > 1e-8 * p * p * p * p) {
      const double scale = 1 / std::sqrt(longest);
      for (double& v : best) v *= scale;
      const double x = best[0], y = best[1], z = best[2];
      return {best, m[0] * x * x + m[3] * y * y + m[5] * z * z +
                        2 * (m[1] * x * y + m[2] * x * z + m[4] * y * z)};
    }
  }
  const Axes axes = principal_axes(m);
  return {axes.vectors[0], axes.values[0]};
}

}  // namespace

Axes principal_axes(const std::array<double, 6>& m) {
  double a[3][3] = {{m[0], m[1], m[2]}, {m[1], m[3], m[4]}, {m[2], m[4], m[5]}};
  double v[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};  // columns are the vectors
  const double scale = std::abs(m[0]) + std::abs(m[3]) + std::abs(m[5]);
  for (int sweep = 0; sweep < 16; ++sweep) {
    const double off = std::abs(a[0][1]) + std::abs(a[0][2]) + std::abs(a[1][2]);
    if (!(off > 1e-15 * scale)) break;
    for (const auto& [p, q] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
      if (a[p][q] == 0) continue;
      const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
      const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1));
      const double c = 1 / std::sqrt(t * t + 1), s = t * c, apq = a[p][q];
      a[p][p] -= t * apq, a[q][q] += t * apq, a[p][q] = a[q][p] = 0;
      const int r = 3 - p - q;
      const double arp = a[r][p], arq = a[r][q];
      a[r][p] = a[p][r] = c * arp - s * arq;
      a[r][q] = a[q][r] = s * arp + c * arq;
      for (auto& row : v) {
        const double vp = row[p], vq = row[q];
        row[p] = c * vp - s * vq;
        row[q] = s * vp + c * vq;
      }
    }
  }
  std::array<size_t, 3> order{0, 1, 2};
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return a[i][i] != a[j][j] ? a[i][i] < a[j][j] : i < j; });
  Axes out;
  for (size_t i = 0; i < 3; ++i) {
    out.values[i] = a[order[i]][order[i]];
    for (size_t j = 0; j < 3; ++j) out.vectors[i][j] = v[j][order[i]];
  }
  return out;
}

void point_normals(const float* points, int64_t n, const int32_t* offsets, const int32_t* sources,
                   const std::array<float, 3>& view, float* normals, float* curvature) {
  parallel_range(n, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::array<double, 3> normal{0, 0, 1};
      double bend = 0;
      const int64_t m = offsets[i + 1] - offsets[i];
      if (m >= 3) {
        const std::array<double, 6> matrix = covariance(points, sources + offsets[i], m);
        const Least least = least_axis(matrix);
        const double sum = matrix[0] + matrix[3] + matrix[5];
        normal = least.vector;
        if (sum > 0) bend = std::max(0.0, least.value) / sum;
      }
      double toward = 0;
      for (size_t a = 0; a < 3; ++a)
        toward += (double{view[a]} - points[i * 3 + static_cast<int64_t>(a)]) * normal[a];
      const double sign = toward < 0 ? -1 : 1;
      for (size_t a = 0; a < 3; ++a)
        normals[i * 3 + static_cast<int64_t>(a)] = static_cast<float>(sign * normal[a]);
      curvature[i] = static_cast<float>(bend);
    }
  });
}

}  // namespace lattice::cpu
