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
        const Axes axes = principal_axes(covariance(points, sources + offsets[i], m));
        const double sum = axes.values[0] + axes.values[1] + axes.values[2];
        normal = axes.vectors[0];
        if (sum > 0) bend = std::max(0.0, axes.values[0]) / sum;
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
