// adamw_step: plain MLX operations say the same; wrong arrays are errors.
#include "lattice/ops/optimizer.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <stdexcept>

namespace lattice {
namespace {

TEST(Optimizer, AdamWIsThePlainFormula) {
  for (const mx::Shape& shape : {mx::Shape{3, 2, 5}, mx::Shape{0}, mx::Shape{1}}) {
    mx::random::seed(1);
    const mx::array p = mx::random::normal(shape), g = mx::random::normal(shape),
                    m = mx::random::normal(shape);
    const mx::array v = mx::square(mx::random::normal(shape)),
                    rates = mx::array({0.98f, 0.05f, 1.0f});
    const auto out = adamw_step(p, g, m, v, rates, {0.9, 0.99, 1e-8f});
    const mx::array m2 = mx::array(0.9f) * m + mx::array(0.1f) * g,
                    v2 = mx::array(0.99f) * v + mx::array(0.01f) * g * g;
    const mx::array p2 =
        mx::array(0.98f) * p - mx::array(0.05f) * m2 / (mx::sqrt(v2) + mx::array(1e-8f));
    EXPECT_TRUE(mx::allclose(out[0], p2, 1e-5, 1e-5).item<bool>());
    EXPECT_TRUE(mx::allclose(out[1], m2, 1e-5, 1e-5).item<bool>());
    EXPECT_TRUE(mx::allclose(out[2], v2, 1e-5, 1e-5).item<bool>());
  }
}

TEST(Optimizer, WrongArraysAreErrors) {
  const mx::array a = mx::zeros({4}), rates = mx::zeros({3});
  EXPECT_THROW(adamw_step(a, mx::zeros({5}), a, a, rates, {0.9, 0.99, 1e-8f}),
               std::invalid_argument);
  EXPECT_THROW(adamw_step(a, a, mx::zeros({4}, mx::float16), a, rates, {0.9, 0.99, 1e-8f}),
               std::invalid_argument);
  EXPECT_THROW(adamw_step(a, a, a, a, a, {0.9, 0.99, 1e-8f}), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
