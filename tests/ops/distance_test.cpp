// Distances: against float64 loops, derivatives of all metrics, zero distances, far from the
// origin.
#include "lattice/ops/distance.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

double exact(const float* a, const float* b, int c, Metric metric) {
  double d2 = 0, ab = 0, aa = 0, bb = 0;
  for (int i = 0; i < c; ++i) {
    d2 += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
    ab += double{a[i]} * double{b[i]}, aa += double{a[i]} * double{a[i]},
        bb += double{b[i]} * double{b[i]};
  }
  if (metric == Metric::cosine) return 1 - ab / std::max(std::sqrt(aa * bb), 1e-8);
  return metric == Metric::euclidean ? std::sqrt(d2) : d2;
}

TEST(Distance, ValuesAndDerivatives) {
  mx::random::seed(1);
  for (const Metric metric : {Metric::euclidean, Metric::squared_euclidean, Metric::cosine})
    for (const int c : {1, 3, 20}) {
      mx::array a = mx::random::normal({37, c}, mx::float32, mx::random::key(1)),
                b = mx::random::normal({1030, c}, mx::float32, mx::random::key(2));
      mx::array d = indexed_distance(a, b, std::nullopt, std::nullopt, metric);
      mx::eval({a, b, d});
      for (int i = 0; i < 37; ++i)
        for (int j = 0; j < 1030; ++j)
          ASSERT_NEAR(d.data<float>()[i * 1030 + j],
                      exact(a.data<float>() + i * c, b.data<float>() + j * c, c, metric),
                      2e-5 * (1 + c));
      const mx::array small = mx::slice(b, {0, 0}, {9, c}), g = mx::random::normal({37, 9}),
                      da = mx::random::normal({37, c}), db = mx::random::normal({9, c});
      const auto f = [&](const std::vector<mx::array>& in) {
        return std::vector<mx::array>{
            indexed_distance(in[0], in[1], std::nullopt, std::nullopt, metric)};
      };
      const auto blocked = [&](const std::vector<mx::array>& in) {
        return std::vector<mx::array>{indexed_distance_blocked(in[0], in[1], 8, metric)};
      };
      const auto [y, grads] = mx::vjp(f, {a, small}, {g});
      const auto [y2, tangents] = mx::jvp(f, {a, small}, {da, db});
      const auto [y3, grads3] = mx::vjp(blocked, {a, small}, {g});
      if (metric == Metric::cosine && c == 1) continue;  // +-1: no slope to compare
      EXPECT_NEAR(product(grads[0], da) + product(grads[1], db), product(g, tangents[0]),
                  2e-3 * (1 + std::fabs(product(g, tangents[0]))));
      EXPECT_TRUE(mx::allclose(grads[0], grads3[0], 1e-4, 1e-4).item<bool>());
      EXPECT_TRUE(mx::allclose(grads[1], grads3[1], 1e-4, 1e-4).item<bool>());
      EXPECT_TRUE(mx::array_equal(y[0], y3[0]).item<bool>());
      // Along a line: differences of the loss.
      const auto loss = [&](const mx::array& v) { return mx::sum(mx::square(f({v, small})[0])); };
      const float h = 1e-2f;
      const auto moved = [&](float t) {
        return double{loss(mx::add(a, mx::multiply(da, mx::array(t)))).item<float>()};
      };
      const double slope = (moved(h) - moved(-h)) / (2 * double{h});
      EXPECT_NEAR(product(mx::grad(loss)(a), da), slope, 2e-2 * (1 + std::fabs(slope)));
      const auto grad_along = [&](const mx::array& v) {
        return mx::sum(mx::multiply(mx::grad(loss)(v), da));
      };
      const auto grad_at = [&](float t) {
        return double{grad_along(mx::add(a, mx::multiply(da, mx::array(t)))).item<float>()};
      };
      const double bend = (grad_at(h) - grad_at(-h)) / (2 * double{h});
      EXPECT_NEAR(product(mx::grad(grad_along)(a), da), bend, 3e-2 * (1 + std::fabs(bend)));
    }
}

TEST(Distance, ZeroDistancesAndFarPoints) {
  const mx::array a = mx::array({1.f, 2.f, 3.f, 0.f, 0.f, 0.f}, {2, 3});
  const auto loss = [&](const mx::array& v) { return mx::sum(indexed_distance(v, a)); };
  EXPECT_TRUE(mx::all(mx::isfinite(mx::grad(loss)(a))).item<bool>());
  EXPECT_EQ(indexed_distance(a, a, std::nullopt, std::nullopt, Metric::cosine).dtype(),
            mx::float32);
  const mx::array cosine = indexed_distance(a, a, std::nullopt, std::nullopt, Metric::cosine);
  EXPECT_EQ(mx::take(cosine, 3).item<float>(), 1.0f);  // a zero vector
  const mx::array far = mx::array({1e6f, 0.f, 0.f, 1e6f + 0.5f, 0.f, 0.f}, {2, 3});
  EXPECT_EQ(mx::take(indexed_distance(far, far), 1).item<float>(), 0.5f);
  const mx::array slope =
      mx::grad([&](const mx::array& v) { return mx::take(indexed_distance(v, far), 1); })(far);
  EXPECT_EQ(mx::take(slope, 0).item<float>(), -1.0f);
}

TEST(Distance, PairsIndicesAndErrors) {
  mx::random::seed(1);
  const mx::array a = mx::random::normal({6, 3}), b = mx::random::normal({4, 3});
  const mx::array i = mx::array({5, 0, 5}, {3}), j = mx::array({1, 1, 3}, {3});
  for (const Metric metric : {Metric::euclidean, Metric::squared_euclidean, Metric::cosine}) {
    const mx::array pairs = indexed_pair_distance(a, i, b, j, metric);
    const mx::array matrix = indexed_distance(a, b, i, j, metric);
    EXPECT_TRUE(mx::allclose(pairs, mx::diagonal(matrix), 1e-5, 1e-6).item<bool>());
  }
  EXPECT_TRUE(mx::allclose(indexed_pair_distance(a, i, b, j, Metric::chebyshev),
                           mx::max(mx::abs(mx::subtract(mx::take(a, i, 0), mx::take(b, j, 0))), 1))
                  .item<bool>());
  EXPECT_EQ(indexed_distance(mx::zeros({0, 3}), b).shape(), (mx::Shape{0, 4}));
  EXPECT_THROW(indexed_distance(a, mx::zeros({4, 2})), std::invalid_argument);
  EXPECT_THROW(indexed_distance(a, b, mx::array({6}, {1})), std::invalid_argument);
  EXPECT_THROW(indexed_distance_blocked(a, b, 0), std::invalid_argument);
  EXPECT_THROW(indexed_pair_distance(a, i, b, mx::array({0}, {1})), std::invalid_argument);
  EXPECT_THROW(parse_metric("manhattan", "test"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
