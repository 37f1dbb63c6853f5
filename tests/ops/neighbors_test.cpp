// Neighbor relations as MLX arrays: views, tensors, derivatives of gathered features, errors.
// Values at large are compared with brute force in tests/kernels/neighbors_test.cpp and
// tests/python/test_neighbors.py.
#include "lattice/ops/neighbors.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

namespace lattice {
namespace {

using Flat = std::vector<int>;

Flat values(const mx::array& a) {
  mx::array wide = mx::contiguous(mx::astype(a, mx::int32));
  wide.eval();
  return Flat(wide.data<int32_t>(), wide.data<int32_t>() + wide.size());
}

const int32_t kLine[] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0};
mx::array line() { return mx::array(kLine, {4, 4}, mx::int32); }

TEST(Neighbors, ViewsOfAKnnRelation) {
  const auto r = build_knn_relation({line(), {}, {}, {}}, 2);
  EXPECT_EQ(values(r->row_offsets()), (Flat{0, 2, 4, 6, 7}));
  EXPECT_EQ(values(r->edges().source_rows), (Flat{0, 1, 1, 0, 2, 1, 3}));
  EXPECT_EQ(values(r->edges().query_rows), (Flat{0, 0, 1, 1, 2, 2, 3}));
  EXPECT_EQ(values(r->edges().neighbor_ids), (Flat{0, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(values(r->distances()), (Flat{0, 1, 0, 1, 0, 4, 0}));
  EXPECT_EQ(values(r->counts()), (Flat{2, 2, 2, 1}));
  EXPECT_EQ(r->max_neighbors(), 2);
  EXPECT_EQ(r->truncated(), 0);
}

TEST(Neighbors, RadiusIsClosedAndTruncationIsCounted) {
  const auto all = build_radius_relation({line(), {}, {}, {}}, 2.0f);
  EXPECT_EQ(values(all->edges().source_rows), (Flat{0, 1, 1, 0, 2, 2, 1, 3}));
  EXPECT_EQ(all->max_neighbors(), 3);
  const auto one = build_radius_relation({line(), {}, {}, {}}, 2.0f, 1);
  EXPECT_EQ(values(one->edges().source_rows), (Flat{0, 1, 2, 3}));
  EXPECT_EQ(one->truncated(), 4);
}

TEST(Neighbors, TensorsNeedEqualStrides) {
  const SparseTensor x(line(), mx::ones({4, 2})), y(line(), mx::ones({4, 2}), {2, 2, 2});
  EXPECT_EQ(knn_relation(x, x, 1)->edge_count(), 4);
  EXPECT_EQ(radius_relation(x, std::nullopt, 1.0f)->edge_count(), 6);
  EXPECT_THROW(knn_relation(x, y, 1), std::invalid_argument);
}

TEST(Neighbors, GatheredFeaturesHaveTheirAdjoint) {
  const mx::array points = mx::random::normal({200, 3}, mx::float32, mx::random::key(1));
  const NeighborIndex index(points, std::nullopt);
  const auto relation = index.knn(5);
  const mx::array x = mx::random::normal({200, 3}, mx::float32, mx::random::key(2));
  const mx::array g = mx::random::normal({1000, 3}, mx::float32, mx::random::key(3));
  const auto f = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{gather_neighbor_features(in[0], *relation)};
  };
  const auto [y, grads] = mx::vjp(f, {x}, {g});
  EXPECT_TRUE(mx::array_equal(y[0], mx::take(x, relation->source_rows(), 0)).item<bool>());
  const double left = double{mx::sum(mx::multiply(g, y[0])).item<float>()};
  const double right = double{mx::sum(mx::multiply(x, grads[0])).item<float>()};
  EXPECT_NEAR(left, right, 1e-4 * (std::fabs(left) + 1));
  const auto [y2, tangents] = mx::jvp(f, {x}, {x});
  EXPECT_TRUE(mx::array_equal(tangents[0], y[0]).item<bool>());
}

}  // namespace
}  // namespace lattice
