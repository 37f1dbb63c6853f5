// Overlaps of rotated boxes against known figures and against counting cells; suppression against
// the plain double loop; points inside.
#include "lattice/kernels/cpu/geometry/boxes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using Rows = std::vector<double>;

Rows random_boxes(int64_t n, double extent, uint64_t seed) {
  support::Random random(seed);
  Rows rows;
  for (int64_t i = 0; i < n; ++i)
    for (const double v : {random.uniform(0, extent), random.uniform(0, extent),
                           random.uniform(-1, 1), random.uniform(0.5, 5), random.uniform(0.3, 2.5),
                           random.uniform(1, 2), random.uniform(-4, 4)})
      rows.push_back(v);
  return rows;
}

double overlap(const Rows& a, const Rows& b, BoxOverlap kind) {
  return box_overlap(rotated_box(a.data()), rotated_box(b.data()), kind);
}

TEST(Boxes, KnownOverlaps) {
  const double pi = std::acos(-1.0);
  const Rows square = {0, 0, 0, 2, 2, 2, 0};
  EXPECT_DOUBLE_EQ(overlap(square, square, BoxOverlap::bev), 1);
  EXPECT_DOUBLE_EQ(overlap(square, {1, 0, 0, 2, 2, 2, 0}, BoxOverlap::area), 2);
  EXPECT_DOUBLE_EQ(overlap(square, {1, 0, 1, 2, 2, 2, 0}, BoxOverlap::volume), 2.0 / 14);
  // A square on its tip cuts an octagon out of itself: 8 (sqrt 2 - 1).
  EXPECT_NEAR(overlap(square, {0, 0, 0, 2, 2, 2, pi / 4}, BoxOverlap::area),
              8 * (std::sqrt(2.0) - 1), 1e-14);
  EXPECT_NEAR(overlap(square, {0, 0, 0, 2, 2, 2, pi / 4}, BoxOverlap::upright), 1, 1e-14);
  EXPECT_EQ(overlap(square, {2, 0, 0, 2, 2, 2, 0}, BoxOverlap::bev), 0);  // one side shared
  EXPECT_EQ(overlap(square, {0, 0, 0, 0, 2, 2, 1}, BoxOverlap::bev), 0);  // no width
  EXPECT_EQ(overlap({0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}, BoxOverlap::volume), 0);
  const Rows far = {1e6, 1e6, 0, 2, 2, 2, 0.3}, moved = {1e6 + 0.5, 1e6, 0, 2, 2, 2, 0.3};
  EXPECT_NEAR(overlap(far, moved, BoxOverlap::area),
              overlap({0, 0, 0, 2, 2, 2, 0.3}, {0.5, 0, 0, 2, 2, 2, 0.3}, BoxOverlap::area), 1e-9);
}

TEST(Boxes, AreaAgreesWithCells) {
  const Rows rows = random_boxes(40, 3, 5);
  constexpr int kSteps = 400;
  for (size_t i = 0; i + 1 < 40; i += 2) {
    const RotatedBox a = rotated_box(&rows[i * 7]), b = rotated_box(&rows[(i + 1) * 7]);
    const auto holds = [](const RotatedBox& box, double x, double y) {
      x -= box.x, y -= box.y;
      return std::abs(x * box.cos + y * box.sin) <= box.dx / 2 &&
             std::abs(y * box.cos - x * box.sin) <= box.dy / 2;
    };
    int hits = 0;
    for (int p = 0; p < kSteps; ++p)
      for (int q = 0; q < kSteps; ++q)
        hits += holds(a, -4 + 12.0 * (p + 0.5) / kSteps, -4 + 12.0 * (q + 0.5) / kSteps) &&
                holds(b, -4 + 12.0 * (p + 0.5) / kSteps, -4 + 12.0 * (q + 0.5) / kSteps);
    EXPECT_NEAR(intersection_area(a, b), hits * 144.0 / kSteps / kSteps, 0.05) << i;
    EXPECT_NEAR(intersection_area(a, b), intersection_area(b, a), 1e-12) << i;
  }
}

TEST(Boxes, SuppressionIsTheDoubleLoop) {
  for (const auto kind : {Suppression::rotated, Suppression::upright, Suppression::circle})
    for (const double threshold : {-0.5, 0.0, 0.01, 0.3, 0.7, 2.0}) {
      const int64_t n = 300;
      const Rows rows = random_boxes(n, 30, 7);
      support::Random random(3);
      std::vector<float> scores(n);
      for (float& s : scores) s = static_cast<float>(random.below(50)) / 50;  // many are equal
      std::vector<int32_t> order, kept;
      for (int v = 50; v >= 0; --v)
        for (int32_t i = 0; i < n; ++i)
          if (scores[static_cast<size_t>(i)] == static_cast<float>(v) / 50) order.push_back(i);
      order.resize(250);
      for (const int32_t i : order) {
        bool falls = false;
        const RotatedBox a = rotated_box(&rows[static_cast<size_t>(i) * 7]);
        for (const int32_t j : kept) {
          const RotatedBox b = rotated_box(&rows[static_cast<size_t>(j) * 7]);
          const double d2 = (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y);
          falls |= kind == Suppression::circle ? d2 <= threshold
                                               : box_overlap(b, a,
                                                             kind == Suppression::rotated
                                                                 ? BoxOverlap::bev
                                                                 : BoxOverlap::upright) > threshold;
        }
        if (!falls) kept.push_back(i);
      }
      const Buffer<int32_t> all = suppress(rows.data(), scores.data(), n, threshold, kind, 250, -1);
      EXPECT_EQ(std::vector<int32_t>(all.begin(), all.end()), kept);
      const Buffer<int32_t> few = suppress(rows.data(), scores.data(), n, threshold, kind, 250, 4);
      EXPECT_EQ(few.size(), std::min<int64_t>(4, all.size()));
    }
}

TEST(Boxes, PointsInside) {
  const Rows boxes = {0, 0, 0, 4, 2, 2, std::acos(-1.0) / 2, 1, 0, 0, 4, 4, 4, 0};
  const std::vector<float> points = {0, 1.9f, 0, 1.5f, 0, 0, 0, 0, 1.5f, 9, 0, 0};
  std::vector<int32_t> owner(4);
  points_in_boxes(points.data(), 4, boxes.data(), 2, owner.data());
  EXPECT_EQ(owner, (std::vector<int32_t>{0, 1, 1, -1}));
}

}  // namespace
}  // namespace lattice::cpu
