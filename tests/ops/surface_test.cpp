// Samples, normals and graphs of points through MLX arrays: views, dtypes, errors.
#include "lattice/ops/surface.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <stdexcept>

namespace lattice {
namespace {

TEST(Surface, ViewsAndDtypes) {
  const mx::array wide = mx::random::normal({400, 6}, mx::float32, 0, 1, mx::random::key(1));
  const mx::array view = mx::slice(wide, {0, 0}, {400, 6}, {2, 2});  // every second row and column
  const mx::array dense = mx::contiguous(view);
  EXPECT_TRUE(mx::array_equal(farthest_point_sample(view, 50), farthest_point_sample(dense, 50))
                  .item<bool>());
  const auto [normals, bend] = estimate_normals(view, 8);
  const auto [same, same_bend] = estimate_normals(dense, 8);
  EXPECT_TRUE(mx::array_equal(normals, same).item<bool>());
  EXPECT_TRUE(mx::array_equal(bend, same_bend).item<bool>());
  const mx::array half = mx::astype(dense, mx::float16);
  const auto [rows, d2] = knn_rows(half, 4);
  const auto [again, d2_again] = knn_rows(mx::astype(half, mx::float32), 4);
  EXPECT_TRUE(mx::array_equal(rows, again).item<bool>());
  EXPECT_TRUE(mx::array_equal(d2, d2_again).item<bool>());
  // Three columns take the tree, four compare all pairs: a column of zeros changes nothing.
  const auto [all, all_d2] = knn_rows(mx::concatenate({dense, mx::zeros({200, 1})}, 1), 4);
  const auto [tree, tree_d2] = knn_rows(dense, 4);
  EXPECT_TRUE(mx::array_equal(all, tree).item<bool>());
  EXPECT_TRUE(mx::array_equal(all_d2, tree_d2).item<bool>());
}

TEST(Surface, EmptyAndErrors) {
  EXPECT_EQ(farthest_point_sample(mx::zeros({0, 3}), 0).shape(), mx::Shape({0}));
  EXPECT_EQ(estimate_normals(mx::zeros({0, 3}), 3).first.shape(), mx::Shape({0, 3}));
  EXPECT_THROW(farthest_point_sample(mx::zeros({0, 3}), 1), std::invalid_argument);
  EXPECT_THROW(farthest_point_sample(mx::zeros({4, 3}), -1), std::invalid_argument);
  EXPECT_THROW(estimate_normals(mx::zeros({4, 3}), 2), std::invalid_argument);
  EXPECT_THROW(knn_rows(mx::zeros({4, 5}), 0), std::invalid_argument);
  EXPECT_THROW(knn_rows(mx::zeros({4}), 1), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
