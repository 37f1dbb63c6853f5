// Derivatives of conv and outer, convolutions of tensors, errors. Values of every route are in
// routes_test.cpp.
#include "lattice/ops/conv.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include <set>

#include "lattice/routes/conv.h"
#include "lattice/selftest/selftest.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

// One case per relation kind, with and without groups, float32.
std::vector<OracleCase> small_cases() {
  std::vector<OracleCase> out;
  for (OracleCase& test : oracle_cases())
    if (const routes::ConvAsked* asked = test.asked(routes::conv_rows());
        asked && !asked->weight.codes && asked->dtype() == mx::float32 && asked->n_edges() > 0 &&
        (asked->c_in == 5 || asked->c_in == 12 || asked->c_in == 24))
      out.push_back(std::move(test));
  return out;
}

// <gy, conv(x)> = <x, conv^T(gy)> = <w, outer(x, gy)>: both gradients are the adjoints.
TEST(Conv, GradientsAreAdjoints) {
  for (const OracleCase& test : small_cases()) {
    const routes::ConvAsked& c = *test.asked(routes::conv_rows());
    const mx::array x = c.x, w = c.weight.w;
    const mx::array gy = normal({static_cast<int>(c.n_out()), static_cast<int>(c.c_out)}, 7);
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{conv(in[0], in[1], c.relation, std::nullopt, c.groups)};
    };
    const auto [y, grads] = mx::vjp(f, {x, w}, {gy});
    const double forward = value(dot(gy, y[0]));
    const double scale = std::fabs(forward) + 1;
    EXPECT_NEAR(value(dot(x, grads[0])), forward, 1e-4 * scale) << test.label;
    EXPECT_NEAR(value(dot(w, grads[1])), forward, 1e-4 * scale) << test.label;
  }
}

TEST(Conv, BiasGradientIsTheSumOverRows) {
  const OracleCase test = small_cases().front();
  const routes::ConvAsked& c = *test.asked(routes::conv_rows());
  const mx::array gy = normal({static_cast<int>(c.n_out()), static_cast<int>(c.c_out)}, 3);
  const auto f = [&](const mx::array& b) {
    return dot(gy, conv(c.x, c.weight.w, c.relation, b, c.groups));
  };
  const mx::array grad = mx::grad(f)(*c.bias);
  EXPECT_TRUE(mx::allclose(grad, mx::sum(gy, 0), 1e-5, 1e-5).item<bool>());
}

// The loss sum(conv(x, w)^3) has first and second derivatives that central differences can check in
// float32.
TEST(Conv, SecondDerivativesMatchFiniteDifferences) {
  for (const OracleCase& test : small_cases()) {
    const routes::ConvAsked& c = *test.asked(routes::conv_rows());
    const auto loss = [&](const std::vector<mx::array>& in) {
      return mx::sum(
          mx::power(conv(in[0], in[1], c.relation, std::nullopt, c.groups), mx::array(3.0f)));
    };
    const mx::array dx = normal(c.x.shape(), 11), dw = normal(c.weight.w.shape(), 12);
    // Derivative along (dx, dw), itself differentiated along (dx, dw).
    const auto slope = [&](const std::vector<mx::array>& in) {
      const auto g = mx::grad(loss, {0, 1})(in);
      return mx::add(dot(g[0], dx), dot(g[1], dw));
    };
    const auto g2 = mx::grad(slope, {0, 1})({c.x, c.weight.w});
    const double along_x = value(dot(g2[0], dx)), along_w = value(dot(g2[1], dw));
    const double h = 1e-2;
    const auto at = [&](double t) {
      const mx::array step(static_cast<float>(t));
      return value(slope(
          {mx::add(c.x, mx::multiply(step, dx)), mx::add(c.weight.w, mx::multiply(step, dw))}));
    };
    const double difference = (at(h) - at(-h)) / (2 * h);
    EXPECT_NEAR(along_x + along_w, difference, 1e-2 * (std::fabs(along_x) + std::fabs(along_w) + 1))
        << test.label;
  }
}

TEST(Conv, JvpEqualsTheTransposedVjp) {
  for (const OracleCase& test : small_cases()) {
    const routes::ConvAsked& c = *test.asked(routes::conv_rows());
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{conv(in[0], in[1], c.relation, std::nullopt, c.groups)};
    };
    const mx::array dx = normal(c.x.shape(), 1), dw = normal(c.weight.w.shape(), 2);
    const mx::array gy = normal({static_cast<int>(c.n_out()), static_cast<int>(c.c_out)}, 3);
    const auto [y, tangents] = mx::jvp(f, {c.x, c.weight.w}, {dx, dw});
    const auto [y2, grads] = mx::vjp(f, {c.x, c.weight.w}, {gy});
    const double left = value(dot(gy, tangents[0])),
                 right = value(mx::add(dot(grads[0], dx), dot(grads[1], dw)));
    EXPECT_NEAR(left, right, 1e-3 * (std::fabs(left) + 1)) << test.label;
  }
}

TEST(Conv, OuterJvpAndVjpAgree) {
  const OracleCase test = small_cases().front();
  const routes::ConvAsked& c = *test.asked(routes::conv_rows());
  const mx::array g = normal({static_cast<int>(c.n_out()), static_cast<int>(c.c_out)}, 5);
  const auto f = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{outer(in[0], in[1], c.relation, c.groups)};
  };
  const mx::array dx = normal(c.x.shape(), 1), dg = normal(g.shape(), 2),
                  u = normal(c.weight.w.shape(), 3);
  const auto [y, tangents] = mx::jvp(f, {c.x, g}, {dx, dg});
  const auto [y2, grads] = mx::vjp(f, {c.x, g}, {u});
  const double left = value(dot(u, tangents[0])),
               right = value(mx::add(dot(grads[0], dx), dot(grads[1], dg)));
  EXPECT_NEAR(left, right, 1e-3 * (std::fabs(left) + 1));
}

SparseTensor line_tensor(int n, int channels) {
  std::vector<int32_t> coords;
  for (int i = 0; i < n; ++i) coords.insert(coords.end(), {0, i, 0, 0});
  return SparseTensor(mx::array(coords.data(), {n, 4}, mx::int32), normal({n, channels}, 1));
}

ConvOptions with(KernelSpec spec) { return {spec, std::nullopt, 1}; }

TEST(Conv, WeightLayoutsAgree) {
  const SparseTensor x = line_tensor(9, 4);
  const KernelSpec spec({3, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1});
  const mx::array w = normal({3, 4, 6}, 2);
  const mx::array dense = mx::reshape(mx::transpose(w, {2, 0, 1}), {6, 3, 1, 1, 4});
  const mx::array a = subm_conv3d(x, w, std::nullopt, with(spec)).feats();
  const mx::array b = subm_conv3d(x, dense, std::nullopt, with(spec)).feats();
  EXPECT_TRUE(mx::array_equal(a, b).item<bool>());
}

TEST(Conv, IdentityAndStrides) {
  const SparseTensor x = line_tensor(8, 4);
  const mx::array w = normal({27, 4, 4}, 3), w2 = normal({8, 4, 4}, 4), w1 = normal({5, 4}, 5);
  EXPECT_TRUE(subm_conv3d(x, w, std::nullopt, with({})).same_coords(x));
  EXPECT_FALSE(conv3d(x, w, std::nullopt, with({})).same_coords(x));
  EXPECT_TRUE(
      conv3d(x, w1, std::nullopt, with(KernelSpec({1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1})))
          .same_coords(x));
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  const SparseTensor down = conv3d(x, w2, std::nullopt, with(half));
  EXPECT_EQ(down.stride(), (Triple{2, 2, 2}));
  EXPECT_EQ(down.active_count(), 4);
  EXPECT_TRUE(conv3d(x, w2, std::nullopt, with(half)).same_coords(down));
  const SparseTensor up = conv_transpose3d(down, w2, std::nullopt, {half, x, 1});
  EXPECT_TRUE(up.same_coords(x));
  EXPECT_EQ(generative_conv_transpose3d(down, w2, std::nullopt, with(half)).active_count(), 32);
  EXPECT_THROW(conv_transpose3d(x, w2, std::nullopt, with(half)), std::invalid_argument);
}

TEST(Conv, NormalizedDividesByTheWeightNorm) {
  const SparseTensor x = line_tensor(6, 3);
  const mx::array w = normal({27, 3, 5}, 6), b = normal({5}, 7);
  const SparseTensor ones = x.with_feats(mx::ones({6, 3}));
  const mx::array plain = subm_conv3d(x, w, std::nullopt, with({})).feats();
  const mx::array norm = subm_conv3d(ones, mx::square(w), std::nullopt, with({})).feats();
  const mx::array expected =
      mx::add(mx::divide(plain, mx::sqrt(mx::add(norm, mx::array(1e-8f)))), b);
  EXPECT_TRUE(
      mx::allclose(normalized_subm_conv3d(x, w, b, with({}), 1e-8f).feats(), expected, 1e-4, 1e-5)
          .item<bool>());
  EXPECT_THROW(normalized_subm_conv3d(x, w, b, with({}), 0.0f), std::invalid_argument);
}

TEST(Conv, BadArgumentsAreErrors) {
  const SparseTensor x = line_tensor(5, 4);
  const mx::array w = normal({27, 4, 4}, 3);
  const auto fails = [&](const mx::array& weight, std::optional<mx::array> bias, ConvOptions o) {
    EXPECT_THROW(conv3d(x, weight, bias, o), std::invalid_argument);
  };
  fails(normal({27, 5, 4}, 1), std::nullopt, with({}));
  fails(normal({26, 4, 4}, 1), std::nullopt, with({}));
  fails(normal({4, 4}, 1), std::nullopt, with({}));
  fails(normal({4, 3, 3, 2, 4}, 1), std::nullopt, with({}));
  fails(w, normal({3}, 1), with({}));
  fails(mx::astype(w, mx::float16), std::nullopt, with({}));
  fails(w, std::nullopt, {{}, std::nullopt, 3});
  fails(w, std::nullopt, {{}, line_tensor(5, 4).coord_key(), 1});
  EXPECT_THROW(subm_conv3d(x, normal({8, 4, 4}, 1), std::nullopt,
                           with(KernelSpec({2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}))),
               std::invalid_argument);
}

}  // namespace
}  // namespace lattice
