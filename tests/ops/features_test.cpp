// Activations, dropout and normalization against float64 formulas; derivatives against finite
// differences.
#include "lattice/ops/features.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include <functional>

#include "tests/ops/arrays.h"

namespace lattice {
namespace {

TEST(Features, Activations) {
  const std::vector<std::pair<Activation, std::function<double(double)>>> cases = {
      {Activation::relu, [](double v) { return std::max(v, 0.0); }},
      {Activation::sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }},
      {Activation::silu, [](double v) { return v / (1 + std::exp(-v)); }},
      {Activation::tanh, [](double v) { return std::tanh(v); }},
      {Activation::gelu, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2))); }},
      {Activation::leaky_relu, [](double v) { return v > 0 ? v : 0.01 * v; }},
      {Activation::softplus, [](double v) { return std::log1p(std::exp(v)); }},
  };
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    mx::array x = mx::astype(mx::multiply(normal({6, 5}, 1), mx::array(3.0f)), dtype);
    mx::array v = mx::astype(x, mx::float32);
    for (const auto& [kind, formula] : cases) {
      mx::array y = mx::astype(activation(x, kind), mx::float32);
      mx::eval({v, y});
      const double unit = dtype == mx::float32 ? 1e-6 : dtype == mx::float16 ? 2e-3 : 1.6e-2;
      for (int i = 0; i < 30; ++i) {
        const double expected = formula(double{v.data<float>()[i]});
        EXPECT_NEAR(double{y.data<float>()[i]}, expected, unit * (std::fabs(expected) + 1))
            << static_cast<int>(kind);
      }
    }
  }
}

// Rows far from 0: a sum of squares minus the square of the sum would lose every digit.
TEST(Features, StatisticsAreExact) {
  const int n = 5000, c = 3;
  mx::array x = mx::add(normal({n, c}, 2), mx::array(4096.0f));
  auto [mean, var] = feature_statistics(x);
  mx::eval({x, mean, var});
  for (int j = 0; j < c; ++j) {
    double m = 0, v = 0;
    for (int i = 0; i < n; ++i) m += double{x.data<float>()[i * c + j]} / n;
    for (int i = 0; i < n; ++i) v += std::pow(double{x.data<float>()[i * c + j]} - m, 2) / n;
    EXPECT_NEAR(double{mean.data<float>()[j]}, m, 5e-4);  // one unit of 4096 in float32
    EXPECT_NEAR(double{var.data<float>()[j]}, v, 1e-5 * v);
  }
}

// relu(batch_norm(x) + residual): values, and the gradient along a direction against differences,
// statistics given or not.
TEST(Features, BatchNormAct) {
  const mx::array x = normal({70, 5}, 11), r = normal({70, 5}, 12), w = normal({5}, 13),
                  b = normal({5}, 14);
  const mx::array mean = normal({5}, 15),
                  var = mx::add(mx::square(normal({5}, 16)), mx::array(0.5f));
  const mx::array way = normal({70, 5}, 17), weights = normal({70, 5}, 18);
  for (const bool given : {false, true})
    for (const bool relu : {false, true}) {
      NormOptions options;
      options.residual = r;
      options.relu = relu;
      const auto run = [&](const mx::array& v) {
        return given ? batch_norm_act(v, {w, b}, mean, var, options)
                     : batch_norm_act(v, {w, b}, {}, {}, options);
      };
      const Normalized n = run(x);
      mx::array expected = mx::multiply(
          mx::multiply(mx::subtract(x, n.mean), mx::rsqrt(mx::add(n.var, mx::array(1e-5f)))), w);
      expected = mx::add(mx::add(expected, b), r);
      if (relu) expected = mx::maximum(expected, mx::array(0.0f));
      EXPECT_TRUE(mx::allclose(n.y, expected, 1e-5, 1e-5).item<bool>());
      const auto loss = [&](const mx::array& v) {
        return mx::sum(mx::multiply(run(v).y, weights));
      };
      const float slope = mx::sum(mx::multiply(mx::grad(loss)(x), way)).item<float>();
      const auto moved = [&](float h) {
        return loss(mx::add(x, mx::multiply(mx::array(h), way))).item<float>();
      };
      EXPECT_NEAR(slope, (moved(1e-2f) - moved(-1e-2f)) / 2e-2f, 0.05f * (std::fabs(slope) + 1));
    }
}

TEST(Features, BatchNorm) {
  const mx::array x = normal({40, 4}, 3), w = normal({4}, 4), b = normal({4}, 5);
  const mx::array y = batch_norm_features(x, {w, b});
  const auto [mean, var] = feature_statistics(x);
  EXPECT_TRUE(mx::allclose(mx::mean(y, 0), b, 1e-4, 1e-5).item<bool>());
  EXPECT_TRUE(mx::allclose(batch_norm_features(x, {w, b}, mean, var), y, 1e-4, 1e-5).item<bool>());
  // The result does not change when a constant is added to a column: its gradient sums to 0.
  const auto loss = [&](const mx::array& a) {
    return mx::sum(mx::power(batch_norm_features(a, {w, b}), mx::array(3.0f)));
  };
  const mx::array grad = mx::grad(loss)(x);
  EXPECT_TRUE(mx::allclose(mx::sum(grad, 0), mx::zeros({4}), 0, 2e-3).item<bool>());
  const mx::array step = normal(x.shape(), 6);
  const float h = 1e-2f;
  const auto at = [&](float t) {
    return loss(mx::add(x, mx::multiply(mx::array(t), step))).item<float>();
  };
  const float along = mx::sum(mx::multiply(grad, step)).item<float>();
  EXPECT_NEAR(along, (at(h) - at(-h)) / (2 * h), 2e-2f * (std::fabs(along) + 1));
}

TEST(Features, EmptyAndHalf) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    EXPECT_EQ(batch_norm_features(mx::zeros({0, 3}, dtype), {}).shape(), (mx::Shape{0, 3}));
    const mx::array x = mx::astype(mx::add(normal({3000, 2}, 7), mx::array(30.0f)), dtype);
    const mx::array y = batch_norm_features(x, {});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_NEAR(mx::max(mx::abs(mx::mean(mx::astype(y, mx::float32), 0))).item<float>(), 0, 1e-3);
    EXPECT_EQ(layer_norm_features(x, {}).dtype(), dtype);
    EXPECT_EQ(rms_norm_features(x, std::nullopt).dtype(), dtype);
  }
}

TEST(Features, Dropout) {
  const mx::array x = mx::ones({200, 50}), key = mx::random::key(1);
  const mx::array y = dropout_features(x, 0.25f, true, key);
  EXPECT_NEAR(mx::mean(y).item<float>(), 1, 0.03);
  EXPECT_NEAR(mx::max(y).item<float>(), 1 / 0.75f, 1e-6);
  EXPECT_EQ(dropout_features(x, 0.25f, false).id(), x.id());
}

TEST(Features, Errors) {
  const mx::array x = normal({4, 3}, 1), two = mx::ones({2}), three = mx::ones({3});
  EXPECT_THROW(dropout_features(x, 1.0f, true), std::invalid_argument);
  EXPECT_THROW(batch_norm_features(x, {two, {}}), std::invalid_argument);
  EXPECT_THROW(batch_norm_features(x, {}, three), std::invalid_argument);
  EXPECT_THROW(batch_norm_features(x, {}, {}, {}, -1.0f), std::invalid_argument);
  EXPECT_THROW(layer_norm_features(mx::ones({3}), {}), std::invalid_argument);
  EXPECT_THROW(rms_norm_features(x, two), std::invalid_argument);
  EXPECT_THROW(activation(mx::ones({2}, mx::int32), Activation::relu), std::invalid_argument);
  EXPECT_THROW(parse_activation("elu", "activation"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
