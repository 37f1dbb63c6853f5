// Voxels through MLX arrays: shapes, limits, empty clouds, errors.
#include "lattice/ops/voxels.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <stdexcept>

namespace lattice {
namespace {

TEST(Voxels, ShapesAndCounts) {
  const mx::array points = mx::array({0.5f, 0.f, 0.f, 7.f, 0.2f, 0.f, 0.f, 9.f}, {2, 4});
  const PointVoxels found = point_voxels(points, {0, 0, 0}, {2, 2, 2}, {1, 1, 1}, 3, 10);
  EXPECT_EQ(found.voxels.shape(), mx::Shape({1, 3, 4}));
  EXPECT_EQ(found.coords.shape(), mx::Shape({1, 3}));
  EXPECT_FLOAT_EQ(mx::max(found.mean).item<float>(), 8);
  EXPECT_EQ(point_voxels(points, {0, 0, 0}, {2, 2, 2}, {1, 1, 1}, -1, 0).full_grid, 2);
  EXPECT_EQ(point_voxels(mx::zeros({0, 3}), {0, 0, 0}, {2, 2, 2}, {1, 1, 1}).mean.shape(),
            mx::Shape({0, 3}));
}

TEST(Voxels, Errors) {
  const mx::array p = mx::zeros({2, 3});
  EXPECT_THROW(point_voxels(mx::zeros({2, 2}), {0, 0, 0}, {2, 2, 2}, {1, 1, 1}),
               std::invalid_argument);
  EXPECT_THROW(point_voxels(p, {0, 0, 0}, {2, 2, 2}, {1, 0, 1}), std::invalid_argument);
  EXPECT_THROW(point_voxels(p, {0, 0, 0}, {2, -2, 2}, {1, 1, 1}), std::invalid_argument);
  EXPECT_THROW(point_voxels(p, {0, 0, 0}, {2, 2, 2}, {1, 1, 1}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
