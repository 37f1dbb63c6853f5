// Attention as an operation: derivatives, values of the reference, names of errors. Values against
// a float64 oracle are cases of the self test and of tests/python.
#include "lattice/ops/attention.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

#include "lattice/routes/decide.h"
#include "lattice/routes/table.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

using Arrays = std::vector<mx::array>;

mx::array integers(const std::vector<int>& values) {
  return mx::array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

// Segments of 5, 0 and 60 queries against 3, 2 and 140 keys; 4 heads on 2, size 5.
struct Problem {
  mx::array q = normal({65, 4, 5}, 1), k = normal({145, 2, 5}, 2), v = normal({145, 2, 5}, 3);
  mx::array offsets = integers({0, 5, 5, 65}), k_offsets = integers({0, 3, 5, 145});
  AttentionOptions options() const { return {.k_offsets = k_offsets}; }
};

TEST(Attention, AdjointAndTangentsAgree) {
  const Problem p;
  const int pairs = 5 * 3 + 60 * 140;
  const mx::array bias = normal({4 * pairs}, 4), table = normal({4, 7}, 5);
  const mx::array places = mx::floor_divide(mx::arange(65), mx::array(9)),
                  k_places = mx::floor_divide(mx::arange(145), mx::array(20));
  for (const int kind : {0, 1, 2, 3}) {
    const auto f = [&](const Arrays& in) -> Arrays {
      AttentionOptions o = p.options();
      if (kind == 1) o.bias = in[3];
      if (kind == 2) o.bias = PositionBias(in[3], places, k_places, {3});
      if (kind == 3) o.mask = "causal";
      return {attention(in[0], in[1], in[2], p.offsets, o)};
    };
    Arrays in = {p.q, p.k, p.v}, t;
    if (kind == 1) in.push_back(bias);
    if (kind == 2) in.push_back(table);
    for (size_t i = 0; i < in.size(); ++i) t.push_back(normal(in[i].shape(), 20 + i));
    const mx::array g = normal(p.q.shape(), 30);
    const auto [y, grads] = mx::vjp(f, in, {g});
    const auto [y2, tangents] = mx::jvp(f, in, t);
    double left = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(grads[i].shape(), in[i].shape());
      left += value(dot(grads[i], t[i]));
    }
    EXPECT_NEAR(left, value(dot(g, tangents[0])), 1e-3 * (1 + std::fabs(left))) << kind;
    EXPECT_TRUE(mx::array_equal(y[0], y2[0]).item<bool>());
  }
}

TEST(Attention, GradientsUseTheirRow) {
  const Problem p;
  const int64_t forward = routes::run_count("attention", "cpu.tiles"),
                backward = routes::run_count("attention_vjp", "cpu.tiles");
  const auto loss = [&](const mx::array& q) {
    return mx::sum(mx::square(attention(q, p.k, p.v, p.offsets, p.options())));
  };
  mx::array g = mx::grad(loss)(p.q);
  g.eval();
  EXPECT_EQ(routes::run_count("attention", "cpu.tiles"), forward + 1);
  EXPECT_EQ(routes::run_count("attention_vjp", "cpu.tiles"), backward + 1);
}

TEST(Attention, OneKeyGivesItsValueAndNoKeyGivesZero) {
  const mx::array q = normal({3, 2, 4}, 1), k = normal({2, 2, 4}, 2), v = normal({2, 2, 4}, 3);
  const mx::array out =
      attention(q, k, v, integers({0, 1, 2, 3}), {.k_offsets = integers({0, 1, 1, 2})});
  const mx::array expected =
      mx::concatenate({mx::slice(v, {0, 0, 0}, {1, 2, 4}), mx::zeros({1, 2, 4}),
                       mx::slice(v, {1, 0, 0}, {2, 2, 4})},
                      0);
  EXPECT_TRUE(mx::array_equal(out, expected).item<bool>());
}

TEST(Attention, Errors) {
  const Problem p;
  EXPECT_THROW(attention(p.q, p.k, p.v, p.offsets), std::invalid_argument);
  EXPECT_THROW(attention(p.q, p.k, p.v, integers({0, 66}), p.options()), std::invalid_argument);
  EXPECT_THROW(attention(mx::zeros({65, 4, 257}), mx::zeros({145, 2, 257}),
                         mx::zeros({145, 2, 257}), p.offsets, p.options()),
               std::invalid_argument);
  AttentionOptions o = p.options();
  o.mask = "none";
  EXPECT_THROW(attention(p.q, p.k, p.v, p.offsets, o), std::invalid_argument);
  EXPECT_THROW(PositionBias(mx::zeros({4, 6}), mx::arange(65), std::nullopt, {3}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lattice
