// Boxes through MLX arrays: views, dtypes, empty cases, errors.
#include "lattice/ops/boxes.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <limits>
#include <stdexcept>

namespace lattice {
namespace {

mx::array one(float x, float size = 2) {
  return mx::array({x, 0.f, 0.f, size, size, size, 0.f}, {1, 7});
}

TEST(Boxes, DtypesAndViews) {
  const mx::array both = mx::concatenate({one(0), one(1)}, 0);
  EXPECT_NEAR(box_overlap(both, one(0), "bev").shape(0), 2, 0);
  EXPECT_FLOAT_EQ(box_overlap_pairs(one(0), one(1), "area").item<float>(), 2);
  EXPECT_EQ(box_overlap(mx::astype(both, mx::float64, mx::Device::cpu), one(0), "bev").dtype(),
            mx::float64);
  EXPECT_EQ(nms(mx::slice(both, {1, 0}, {2, 7}), mx::ones({1}), 0.5, "rotated").shape(0), 1);
  const mx::array kept = nms(both, mx::array({0.1f, 0.2f}), 0.2, "rotated");
  EXPECT_EQ(kept.shape(0), 1);
  EXPECT_EQ(kept.item<int32_t>(), 1);
  EXPECT_EQ(points_in_boxes(mx::zeros({2, 3}), both).shape(0), 2);
}

TEST(Boxes, EmptyAndErrors) {
  const mx::array none = mx::zeros({0, 7});
  EXPECT_EQ(box_overlap(none, one(0), "3d").shape(), mx::Shape({0, 1}));
  EXPECT_EQ(nms(none, mx::zeros({0}), 0.5, "circle").shape(), mx::Shape({0}));
  EXPECT_EQ(points_in_boxes(mx::zeros({0, 3}), none).shape(), mx::Shape({0}));
  EXPECT_THROW(box_overlap(mx::zeros({1, 6}), one(0), "bev"), std::invalid_argument);
  EXPECT_THROW(box_overlap(one(0), one(0), "top"), std::invalid_argument);
  EXPECT_THROW(box_overlap(one(std::numeric_limits<float>::quiet_NaN()), one(0), "bev"),
               std::invalid_argument);
  EXPECT_THROW(box_overlap(one(0, -1), one(0), "bev"), std::invalid_argument);
  EXPECT_THROW(box_overlap_pairs(none, one(0), "bev"), std::invalid_argument);
  EXPECT_THROW(nms(one(0), mx::zeros({2}), 0.5, "rotated"), std::invalid_argument);
  EXPECT_THROW(points_in_boxes(mx::zeros({1, 4}), none), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
