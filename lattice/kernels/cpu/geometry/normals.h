// Normals and curvature of points by principal components of their neighbors (Hoppe et al.,
// "Surface reconstruction from unorganized points", 1992).
//
//   C = 1/m sum over the m neighbors q of (q - mean)(q - mean)^T,   eigenvalues l0 <= l1 <= l2
//   normal = unit eigenvector of l0,   curvature = l0 / (l0 + l1 + l2), 0 where the sum is 0
//
// Sums and eigenvectors are float64. The sign of a normal is chosen so that it points to `view`.
#pragma once

#include <array>
#include <cstdint>

namespace lattice::cpu {

// Eigenvalues, ascending, and the unit eigenvectors, one per row, of the symmetric matrix xx, xy,
// xz, yy, yz, zz, by Jacobi rotations.
struct Axes {
  std::array<double, 3> values;
  std::array<std::array<double, 3>, 3> vectors;
};
Axes principal_axes(const std::array<double, 6>& matrix);

// Neighbors of point i: sources[offsets[i] .. offsets[i + 1]]. normals is (n, 3), curvature (n,).
// Fewer than three neighbors do not determine a direction; the normal is then (0, 0, 1), turned to
// the view, and the curvature 0.
void point_normals(const float* points, int64_t n, const int32_t* offsets, const int32_t* sources,
                   const std::array<float, 3>& view, float* normals, float* curvature);

}  // namespace lattice::cpu
