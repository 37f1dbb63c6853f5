// Which points enter which voxels: limits, order, borders in float32, and values that are no
// numbers.
#include "lattice/kernels/cpu/geometry/voxels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lattice::cpu {
namespace {

std::vector<int32_t> values(const Buffer<int32_t>& b) { return {b.begin(), b.end()}; }

TEST(Voxels, LimitsKeepTheFirstPoints) {
  const VoxelGrid grid{{0, 0, 0}, {1, 1, 1}, {4, 4, 4}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> points = {0.5f, 0,   0,    1.5f, 0,    0, 0.25f, 0, 0,     0.75f,
                                     0,    0,   2.5f, 0,    0,    4, 0,     0, -0.5f, 0,
                                     0,    nan, 0,    0,    1.5f, 0, 0,     1, 0,     3.5f};
  const VoxelPoints found = voxelize_points(points.data(), 10, 3, grid, 2, 2);
  EXPECT_EQ(found.n_voxels, 2);
  EXPECT_EQ(values(found.cells), (std::vector<int32_t>{0, 0, 0, 0, 0, 1}));  // z, y, x
  EXPECT_EQ(values(found.counts), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(values(found.owner), (std::vector<int32_t>{0, 1, 0, 0, -1, -1, -1, -1, 1, -1}));
  EXPECT_EQ(found.dropped.outside, 3);
  EXPECT_EQ(found.dropped.full_voxel, 1);
  EXPECT_EQ(found.dropped.full_grid, 2);
  std::vector<float> slots(12), mean(6);
  fill_slots(points.data(), 10, 3, found, 2, slots.data());
  EXPECT_EQ(slots, (std::vector<float>{0.5f, 0, 0, 0.25f, 0, 0, 1.5f, 0, 0, 1.5f, 0, 0}));
  voxel_means(points.data(), 10, 3, found, mean.data());
  EXPECT_EQ(mean, (std::vector<float>{0.375f, 0, 0, 1.5f, 0, 0}));
}

TEST(Voxels, WithoutLimitsAndWithoutPoints) {
  const VoxelGrid grid{{0, 0, 0}, {0.1f, 0.1f, 0.1f}, {10, 10, 10}};
  std::vector<float> points;
  for (int i = 0; i < 300; ++i)
    for (const int a : {i % 10, i / 10 % 10, i / 100})
      points.push_back(0.05f + 0.1f * static_cast<float>(a));
  const VoxelPoints all = voxelize_points(points.data(), 300, 3, grid, -1, -1);
  EXPECT_EQ(all.n_voxels, 300);
  EXPECT_EQ(all.dropped.outside + all.dropped.full_grid + all.dropped.full_voxel, 0);
  const VoxelPoints none = voxelize_points(nullptr, 0, 3, grid, 5, 5);
  EXPECT_EQ(none.n_voxels, 0);
}

}  // namespace
}  // namespace lattice::cpu
