// Outliers and ICP from C++: known answers, columns of any layout, errors.
#include "lattice/ops/registration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace lattice {
namespace {

// Points on the floor and two walls: all six motions are seen.
std::vector<double> room(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> made;
  for (int i = 0; i < n; ++i)
    for (int axis = 0; axis < 3; ++axis)
      made.push_back(axis == i % 3 ? 0 : 4.0 * random() / 4294967296.0);
  return made;
}

std::vector<double> moved(const std::vector<double>& points, double angle, double x, double y) {
  std::vector<double> made = points;
  for (size_t i = 0; i < points.size(); i += 3) {
    made[i] = std::cos(angle) * points[i] - std::sin(angle) * points[i + 1] + x;
    made[i + 1] = std::sin(angle) * points[i] + std::cos(angle) * points[i + 1] + y;
  }
  return made;
}

TEST(Registration, FindsTheMotion) {
  for (const double offset : {0.0, 5e5}) {
    std::vector<double> source = room(3000, 1), target = moved(source, 0.02, 0.05, -0.03);
    for (auto* points : {&source, &target})
      for (double& value : *points) value += offset;
    const Registration found = icp(Cloud::view(std::span<const double>(source)),
                                   Cloud::view(std::span<const double>(target)), {.reach = 0.5});
    EXPECT_TRUE(found.converged);
    EXPECT_NEAR(found.pose[1], -std::sin(0.02), 1e-6);
    EXPECT_LT(found.rms, 1e-5);
    const double x = found.pose[0] * source[0] + found.pose[1] * source[1] +
                     found.pose[2] * source[2] + found.pose[3];
    EXPECT_NEAR(x, target[0], 1e-4);
  }
}

TEST(Registration, OutliersOfRecords) {
  std::vector<float> records;  // x y z intensity
  for (int i = 0; i < 50; ++i) records.insert(records.end(), {static_cast<float>(i), 0, 0, 7});
  records.insert(records.end(), {0, 90, 0, 8});
  Cloud cloud = Cloud::view(std::span<const float>(records), 4);
  cloud.column("intensity", std::span(records).subspan(3), 4);
  for (const auto& keep : {statistical_inliers(cloud, 4), radius_inliers(cloud, 1.5, 1)}) {
    const Cloud kept = cloud.select(keep);
    ASSERT_EQ(kept.size(), 50);
    EXPECT_EQ(kept.points().at(49, 0), 49);
    EXPECT_EQ(kept.find("intensity")->at(49, 0), 7);
  }
}

TEST(Registration, ErrorsAndEmptyClouds) {
  const std::vector<float> flat = {0, 0, 0, 1, 0, 0, 2, 1, 0, 0, 1, 0, 3, 2, 0, 1, 2, 0, 3, 3, 0};
  const Cloud plane = Cloud::view(std::span<const float>(flat));
  EXPECT_THROW(icp(plane, plane), std::invalid_argument);  // it can slide
  EXPECT_THROW(icp(Cloud(), plane), std::invalid_argument);
  EXPECT_THROW(icp(plane, Cloud()), std::invalid_argument);
  EXPECT_THROW(icp(plane, plane, {.steps = 0}), std::invalid_argument);
  EXPECT_THROW(icp(plane, plane, {.reach = NAN}), std::invalid_argument);
  EXPECT_THROW(statistical_inliers(plane, 7), std::invalid_argument);
  EXPECT_THROW(statistical_inliers(plane, 2, -1), std::invalid_argument);
  EXPECT_THROW(radius_inliers(plane, -1), std::invalid_argument);
  EXPECT_THROW(plane.select(std::vector<uint8_t>(3)), std::invalid_argument);
  EXPECT_TRUE(radius_inliers(Cloud(), 1).empty());
  EXPECT_TRUE(statistical_inliers(Cloud(), 1).empty());
  const std::vector<float> hole = {0, 0, NAN};
  EXPECT_THROW(radius_inliers(Cloud::view(std::span<const float>(hole)), 1), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
