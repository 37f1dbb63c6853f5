// Voxels of points and the groups of rows, against plain code.
#include "lattice/kernels/cpu/geometry/points.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Random;

std::vector<float> random_points(Random& random, int64_t n) {
  std::vector<float> points(static_cast<size_t>(n * 3));
  for (float& v : points) v = static_cast<float>(random.uniform(-9, 9));
  return points;
}

template <typename T>
void expect_floors(uint64_t seed) {
  Random random(seed);
  VoxelFrame frame{{0.1f, -3.0f, 1e-3f}, {0.3f, 0.05f, 7.0f}, 0};
  for (const T shift : {T{0}, T{0.5}})
    for (const int64_t n : {0, 1, 2, 15, 16, 17, 33, 40000}) {
      frame.shift = shift;
      const auto floats = random_points(random, n);
      const std::vector<T> points(floats.begin(), floats.end());
      std::vector<int32_t> batch(static_cast<size_t>(n)), coords(static_cast<size_t>(n * 4));
      for (int32_t& b : batch) b = static_cast<int32_t>(random.below(5));
      ASSERT_EQ(quantize_points(points.data(), n, batch.data(), frame, coords.data()), -1);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        ASSERT_EQ(coords[i * 4], batch[i]);
        for (size_t a = 0; a < 3; ++a) {
          const T q =
              (points[i * 3 + a] - static_cast<T>(frame.origin[a])) / static_cast<T>(frame.size[a]);
          ASSERT_EQ(coords[i * 4 + 1 + a], static_cast<int32_t>(std::floor(q + shift)))
              << i << " of " << n;
        }
      }
    }
}

TEST(Points, VoxelsAreFloorsInFloat32) { expect_floors<float>(1); }

TEST(Points, VoxelsOfDoublesAreFloorsInFloat64) { expect_floors<double>(4); }

TEST(Points, FirstBadRow) {
  Random random(2);
  const float bad[] = {NAN, INFINITY, -INFINITY, 0x1p31f, -2147483904.0f};
  for (const int64_t n : {1, 16, 21, 50000})
    for (const float value : bad) {
      auto points = random_points(random, n);
      const int64_t row = random.below(n);
      points[static_cast<size_t>(row * 3 + random.below(3))] = value;
      points[static_cast<size_t>(n * 3 - 1)] = value;
      std::vector<int32_t> coords(static_cast<size_t>(n * 4));
      EXPECT_EQ(quantize_points(points.data(), n, nullptr, {}, coords.data()), row)
          << value << " of " << n;
      const std::vector<double> wide(points.begin(), points.end());
      EXPECT_EQ(quantize_points(wide.data(), n, nullptr, {}, coords.data()), row)
          << value << " of " << n;
    }
  const float ends[] = {-0x1p31f, 2147483520.0f, 0};
  int32_t coords[4];
  EXPECT_EQ(quantize_points(ends, 1, nullptr, {}, coords), -1);
  EXPECT_EQ(coords[1], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(coords[2], 2147483520);
}

TEST(Points, GroupsHoldTheRowsOfEachVoxel) {
  Random random(3);
  for (const int64_t n : {0, 1, 7, 60000}) {
    std::vector<int32_t> coords;
    for (int64_t i = 0; i < n; ++i)
      coords.insert(coords.end(), {0, static_cast<int32_t>(random.below(30)),
                                   static_cast<int32_t>(random.below(30)), 0});
    const CoordIndex index = index_coords({coords.data(), n, false});
    const Distinct distinct = distinct_rows(index);
    const Groups groups = group_rows(index, distinct);
    const Groups again = group_entries(distinct.inverse.span(), distinct.first.size());
    std::vector<std::vector<int32_t>> want(static_cast<size_t>(distinct.first.size()));
    for (int64_t r = 0; r < n; ++r)
      want[static_cast<size_t>(distinct.inverse[r])].push_back(static_cast<int32_t>(r));
    ASSERT_EQ(groups.offsets.size(), distinct.first.size() + 1);
    for (size_t g = 0; g < want.size(); ++g) {
      const int64_t d = static_cast<int64_t>(g);
      for (const Groups* found : {&groups, &again})
        ASSERT_EQ(std::vector<int32_t>(found->rows.begin() + found->offsets[d],
                                       found->rows.begin() + found->offsets[d + 1]),
                  want[g]);
    }
  }
}

TEST(Points, EntriesWithoutAGroupAreLeftOut) {
  const std::vector<int32_t> group{2, -1, 0, 2, -1};
  const Groups found = group_entries(group, 4);
  EXPECT_EQ(std::vector<int32_t>(found.offsets.begin(), found.offsets.end()),
            (std::vector<int32_t>{0, 1, 1, 3, 3}));
  EXPECT_EQ(std::vector<int32_t>(found.rows.begin(), found.rows.end()),
            (std::vector<int32_t>{2, 0, 3}));
}

}  // namespace
}  // namespace lattice::cpu
