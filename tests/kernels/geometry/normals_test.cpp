// Principal axes: A v = l v, unit and perpendicular; normals of a plane, a line and few points.
#include "lattice/kernels/cpu/geometry/normals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

TEST(Normals, AxesAreEigenvectors) {
  support::Random random(1);
  for (int round = 0; round < 500; ++round) {
    std::array<double, 6> m;
    const double scale = std::pow(10.0, random.uniform(-12, 12));
    for (double& v : m) v = scale * (round % 3 ? random.uniform(-1, 1) : random.below(3));
    const Axes axes = principal_axes(m);
    const double a[3][3] = {{m[0], m[1], m[2]}, {m[1], m[3], m[4]}, {m[2], m[4], m[5]}};
    EXPECT_LE(axes.values[0], axes.values[1]);
    EXPECT_LE(axes.values[1], axes.values[2]);
    for (size_t i = 0; i < 3; ++i)
      for (size_t r = 0; r < 3; ++r) {
        double dot = 0, image = 0;
        for (size_t c = 0; c < 3; ++c) {
          dot += axes.vectors[i][c] * axes.vectors[r][c];
          image += a[r][c] * axes.vectors[i][c];
        }
        EXPECT_NEAR(dot, i == r ? 1 : 0, 1e-13);
        EXPECT_NEAR(image, axes.values[i] * axes.vectors[i][r], 1e-13 * scale * 6);
      }
  }
}

TEST(Normals, PlaneLineAndFewPoints) {
  // Rows 0 to 3 lie in the plane z = 2; row 4 is alone.
  const std::vector<float> p = {0, 0, 2, 1, 0, 2, 0, 1, 2, 1, 1, 2, 9, 9, 9};
  const std::vector<int32_t> offsets = {0, 4, 8, 12, 16, 17},
                             sources = {0, 1, 2, 3, 1, 0, 2, 3, 2, 0, 1, 3, 3, 0, 1, 2, 4};
  std::vector<float> normals(15), bend(5);
  point_normals(p.data(), 5, offsets.data(), sources.data(), {0, 0, 10}, normals.data(),
                bend.data());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(normals[i * 3 + 2], 1, 1e-7) << i;
    EXPECT_NEAR(bend[i], 0, 1e-12) << i;
  }
  point_normals(p.data(), 5, offsets.data(), sources.data(), {0, 0, -10}, normals.data(),
                bend.data());
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(normals[i * 3 + 2], -1, 1e-7) << i;
}

}  // namespace
}  // namespace lattice::cpu
