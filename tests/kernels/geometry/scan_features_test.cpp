#include "lattice/kernels/cpu/geometry/scan_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lattice::cpu {
namespace {

TEST(Scan, QuantileLiesBetweenTwoValues) {
  std::vector<float> values{5, 1, 3};
  EXPECT_EQ(quantile(values, 0.02), 1.08f);
  EXPECT_EQ(quantile(values, 1), 5);
  std::vector<float> one{7};
  EXPECT_EQ(quantile(one, 0.02), 7);
  EXPECT_EQ(quantile({}, 0.02), 0);
}

TEST(Scan, FiniteRowsAndTheirLowCorner) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> points{nan, 0, 0, 1e6, 2, 3, 1e6 + 0.25, 1, 4};
  const Buffer<int32_t> rows = finite_rows(points.data(), 3);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0], 1);
  const auto low = low_corner(points.data(), rows.span());
  EXPECT_EQ(low, (std::array<double, 3>{1e6, 1, 3}));
  std::vector<float> out(6);
  local_points(points.data(), rows.span(), low, out.data());
  EXPECT_EQ(out, (std::vector<float>{0, 1, 0, 0.25f, 0, 1}));
  EXPECT_EQ(low_corner(points.data(), {}), (std::array<double, 3>{0, 0, 0}));
}

TEST(Scan, FeaturesOfOneVoxel) {
  const std::vector<float> points{0.25f, 0.5f, 0, 0.25f, 1, 1};
  std::vector<float> table(2 * 5, 9);
  scan_table(points.data(), 2, 2, 5, table.data());
  EXPECT_EQ(table[0], 0.125f - 0.5f);
  EXPECT_EQ(table[4], 9) << "columns are not touched";
  const std::vector<int32_t> counts{2};
  std::vector<float> feats(7);
  scan_features(table.data(), counts.data(), 1, 5, feats.data());
  EXPECT_EQ(feats[0], 1);
  EXPECT_EQ(feats[1], table[0]);
  EXPECT_EQ(feats[5], static_cast<float>(std::log1p(2.0)) / 2);
  EXPECT_EQ(feats[6], 9);
}

}  // namespace
}  // namespace lattice::cpu
