// MVMR and VVOR: against float64 loops, derivatives, layouts, threads, errors.
#include "lattice/ops/triplets.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/selftest/selftest.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

mx::array ids(Random& random, int n, int below) {
  std::vector<int32_t> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<int32_t>(random.below(below)));
  return mx::array(v.data(), {n}, mx::int32);
}
double at(const mx::array& a, int64_t i) { return double{a.data<float>()[i]}; }

struct Case {
  int n, n_a, n_b, n_o, groups, c, m;
};
// Shared matrices, a matrix for nearly each triplet, many triplets for each (matrix, row), one of
// everything, none.
constexpr Case kCases[] = {
    {500, 9, 40, 30, 1, 16, 32}, {300, 5, 20, 25, 3, 5, 17},  {60, 60, 20, 25, 2, 33, 7},
    {900, 3, 50, 7, 1, 32, 64},  {900, 3, 50, 7, 2, 33, 40},  {1, 1, 1, 1, 1, 1, 1},
    {200, 4, 30, 9, 8, 3, 2},    {100, 1, 30, 12, 1, 127, 5}, {0, 3, 0, 5, 2, 4, 6}};

TEST(Triplets, ValuesAndDerivatives) {
  Random random{5};
  for (const Case& z : kCases) {
    const mx::array k = ids(random, z.n, z.n_a), i = ids(random, z.n, std::max(1, z.n_b)),
                    o = ids(random, z.n, z.n_o);
    mx::array a = random_values(random, {z.n_a, z.groups, z.c, z.m}, mx::float32).array;
    mx::array b = random_values(random, {z.n_b, z.groups, z.c}, mx::float32).array;
    mx::array g = random_values(random, {z.n_o, z.groups, z.m}, mx::float32).array;
    mx::array y = mvmr(a, k, b, i, o, z.n_o), u = vvor(b, i, g, o, k, z.n_a);
    mx::eval({a, b, g, y, u});
    std::vector<double> want_y(static_cast<size_t>(y.size())),
        want_u(static_cast<size_t>(u.size()));
    for (int t = 0; t < z.n; ++t)
      for (int q = 0; q < z.groups; ++q)
        for (int c = 0; c < z.c; ++c)
          for (int m = 0; m < z.m; ++m) {
            const int64_t matrix = ((k.data<int32_t>()[t] * z.groups + q) * z.c + c) * z.m + m;
            const int64_t from = (i.data<int32_t>()[t] * z.groups + q) * z.c + c,
                          to = (o.data<int32_t>()[t] * z.groups + q) * z.m + m;
            want_y[static_cast<size_t>(to)] += at(a, matrix) * at(b, from);
            want_u[static_cast<size_t>(matrix)] += at(b, from) * at(g, to);
          }
    mx::array dense = mx::contiguous(u);
    dense.eval();
    for (size_t j = 0; j < want_y.size(); ++j)
      ASSERT_NEAR(y.data<float>()[j], want_y[j], 2e-4) << z.n << " " << z.c;
    for (size_t j = 0; j < want_u.size(); ++j)
      ASSERT_NEAR(dense.data<float>()[j], want_u[j], 2e-4) << z.n << " " << z.c;
    if (z.n == 0) continue;
    // dL/da is vvor, dL/db is mvmr with the matrices transposed and the roles of the rows swapped.
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{mvmr(in[0], k, in[1], i, o, z.n_o)};
    };
    const auto [value, grads] = mx::vjp(f, {a, b}, {g});
    EXPECT_TRUE(mx::allclose(grads[0], u, 1e-4, 1e-4).item<bool>());
    EXPECT_TRUE(mx::allclose(grads[1], mvmr(a, k, g, o, i, z.n_b, MatrixLayout::gmc), 1e-4, 1e-4)
                    .item<bool>());
    const mx::array da = random_values(random, a.shape(), mx::float32).array,
                    db = random_values(random, b.shape(), mx::float32).array;
    const auto [value2, tangents] = mx::jvp(f, {a, b}, {da, db});
    const double scale = 1e-3 * (1 + std::fabs(product(g, tangents[0])));
    EXPECT_NEAR(product(g, tangents[0]), product(grads[0], da) + product(grads[1], db), scale);
    // <g, mvmr> is bilinear: the mixed second derivative along (da, db) is <g, mvmr(da, db)>.
    const auto slope = [&](const mx::array& v) {
      const auto loss = [&](const mx::array& w) {
        return mx::sum(mx::multiply(mvmr(w, k, v, i, o, z.n_o), g));
      };
      return mx::sum(mx::multiply(mx::grad(loss)(a), da));
    };
    EXPECT_NEAR(product(mx::grad(slope)(b), db), product(g, mvmr(da, k, db, i, o, z.n_o)), scale);
    EXPECT_TRUE(mx::allclose(mvmr(mx::swapaxes(a, 2, 3), k, b, i, o, z.n_o, MatrixLayout::gmc), y,
                             1e-5, 1e-5)
                    .item<bool>());
  }
}

TEST(Triplets, LeftOutIndices) {
  Random random{6};
  const mx::array o = ids(random, 12, 4), each = mx::arange(12);
  const mx::array a = random_values(random, {12, 1, 3, 5}, mx::float32).array;
  const mx::array b = random_values(random, {12, 1, 3}, mx::float32).array;
  const mx::array rows = random_values(random, {4, 1, 3}, mx::float32).array;
  EXPECT_TRUE(
      mx::allclose(mvmr(a, std::nullopt, b, std::nullopt, o, 4), mvmr(a, each, b, each, o, 4))
          .item<bool>());
  EXPECT_TRUE(
      mx::allclose(mvmr(a, std::nullopt, rows, std::nullopt, o, 4), mvmr(a, each, rows, o, o, 4))
          .item<bool>());
  EXPECT_THROW(mvmr(a, std::nullopt, mx::zeros({5, 1, 3}), std::nullopt, o, 4),
               std::invalid_argument);
  EXPECT_THROW(mvmr(mx::zeros({3, 1, 3, 5}), std::nullopt, b, std::nullopt, o, 4),
               std::invalid_argument);
}

TEST(Triplets, SameBitsForAnyThreadsAndMixedDtypes) {
  Random random{7};
  const mx::array k = ids(random, 20000, 27), i = ids(random, 20000, 2000),
                  o = ids(random, 20000, 2000);
  mx::random::seed(1);
  const mx::array a = mx::random::normal({27, 1, 32, 32}), b = mx::random::normal({2000, 1, 32});
  const int before = cpu::thread_count();
  std::vector<mx::array> results;
  for (const int threads : {1, 2}) {
    cpu::set_thread_count(threads);
    results.push_back(mvmr(a, k, b, i, o, 2000));
    results.push_back(vvor(b, i, b, o, k, 27));
    mx::eval(results);
  }
  cpu::set_thread_count(before);
  EXPECT_TRUE(mx::array_equal(results[0], results[2]).item<bool>());
  EXPECT_TRUE(mx::array_equal(results[1], results[3]).item<bool>());
  const mx::array half = mx::astype(b, mx::float16);
  EXPECT_EQ(mvmr(a, k, half, i, o, 2000).dtype(), mx::float32);
  EXPECT_EQ(mvmr(mx::astype(a, mx::bfloat16), k, half, i, o, 2000).dtype(), mx::float32);
  EXPECT_EQ(mvmr(mx::astype(a, mx::float16), k, half, i, o, 2000).dtype(), mx::float16);
}

TEST(Triplets, Errors) {
  const mx::array a = mx::zeros({2, 1, 3, 4}), b = mx::zeros({5, 1, 3}),
                  one = mx::array({0, 1}, {2});
  EXPECT_THROW(mvmr(a, mx::array({0, 2}, {2}), b, one, one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(a, mx::array({0, -1}, {2}), b, one, one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(a, one, b, mx::array({0, 5}, {2}), one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(a, one, b, one, one, 1), std::invalid_argument);
  EXPECT_THROW(mvmr(a, one, b, one, one, -1), std::invalid_argument);
  EXPECT_THROW(mvmr(a, mx::array({0}, {1}), b, one, one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(a, one, mx::zeros({5, 2, 3}), one, one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(mx::zeros({2, 3, 4}), one, b, one, one, 3), std::invalid_argument);
  EXPECT_THROW(mvmr(mx::astype(a, mx::int32), one, b, one, one, 3), std::invalid_argument);
  EXPECT_THROW(vvor(b, one, mx::zeros({5, 2, 3}), one, one, 3), std::invalid_argument);
  EXPECT_EQ(
      vvor(b, mx::zeros({0}, mx::int32), b, mx::zeros({0}, mx::int32), mx::zeros({0}, mx::int32), 0)
          .shape(),
      (mx::Shape{0, 1, 3, 3}));
}

}  // namespace
}  // namespace lattice
