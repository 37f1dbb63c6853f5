// Derivatives of pooling, and pooling of tensors. Values of every mode are in routes_test.cpp.
#include "lattice/ops/pool.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

#include "lattice/ops/reduce_edges.h"
#include "lattice/selftest/selftest.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

// Few values: maxima have ties.
mx::array coarse(const mx::Shape& shape, uint64_t seed) {
  return mx::divide(mx::round(mx::multiply(normal(shape, seed), mx::array(2.0f))), mx::array(2.0f));
}

std::vector<Relation::Ptr> some_relations() {
  Random random{3};
  std::vector<Relation::Ptr> out;
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::submanifold, RelationKind::transposed,
        RelationKind::target_transposed, RelationKind::custom})
    out.push_back(make_relation(random, kind, 50));
  return out;
}

std::vector<float> weights_of(const Relation::Ptr& r) {
  std::vector<float> w;
  for (int64_t k = 0; k < r->n_kernels(); ++k)
    w.push_back(0.25f + 0.5f * static_cast<float>(k % 3));
  return w;
}

// <gy, A x> = <A^T gy, x>, and jvp is A itself: sum, mean and spread are linear.
TEST(Pool, LinearModesAreTheirOwnJvpAndHaveAdjoints) {
  for (const Relation::Ptr& r : some_relations())
    for (const PoolMode mode : {PoolMode::sum, PoolMode::mean, PoolMode::mean_adjoint})
      for (const auto& w : {std::vector<float>{}, weights_of(r)}) {
        const auto f = [&](const std::vector<mx::array>& in) {
          return std::vector<mx::array>{reduce_edges(in[0], r, mode, w)};
        };
        const mx::array x = normal({static_cast<int>(r->n_in()), 6}, 1),
                        g = normal({static_cast<int>(r->n_out()), 6}, 2);
        const auto [y, grads] = mx::vjp(f, {x}, {g});
        const auto [y2, tangents] = mx::jvp(f, {x}, {x});
        EXPECT_NEAR(product(g, y[0]), product(grads[0], x), 1e-3) << r->text();
        EXPECT_TRUE(mx::array_equal(y[0], tangents[0]).item<bool>());
      }
}

// The gradient of max is shared equally by the edges that have the maximum.
TEST(Pool, MaxGradientIsSharedByTies) {
  for (const Relation::Ptr& r : some_relations())
    for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      const int n_in = static_cast<int>(r->n_in()), n_out = static_cast<int>(r->n_out()), c = 5;
      const mx::array x = mx::astype(coarse({n_in, c}, 4), dtype),
                      g = mx::astype(coarse({n_out, c}, 5), dtype);
      const auto f = [&](const std::vector<mx::array>& in) {
        return std::vector<mx::array>{reduce_edges(in[0], r, PoolMode::max)};
      };
      auto [y, grads] = mx::vjp(f, {x}, {g});
      mx::array xf = mx::astype(x, mx::float32), gf = mx::astype(g, mx::float32),
                yf = mx::astype(y[0], mx::float32);
      mx::array found = mx::astype(grads[0], mx::float32);
      mx::eval({xf, gf, yf, found});
      const int32_t *in = r->edges().in_rows.data<int32_t>(),
                    *out = r->edges().out_rows.data<int32_t>();
      std::vector<double> ties(static_cast<size_t>(n_out * c)),
          expected(static_cast<size_t>(n_in * c));
      const auto tied = [&](int64_t e, int64_t j) {
        return xf.data<float>()[in[e] * c + j] == yf.data<float>()[out[e] * c + j];
      };
      for (int64_t e = 0; e < r->edge_count(); ++e)
        for (int64_t j = 0; j < c; ++j) ties[static_cast<size_t>(out[e] * c + j)] += tied(e, j);
      for (int64_t e = 0; e < r->edge_count(); ++e)
        for (int64_t j = 0; j < c; ++j)
          if (tied(e, j)) {
            const auto at = static_cast<size_t>(out[e] * c + j);
            expected[static_cast<size_t>(in[e] * c + j)] += double{gf.data<float>()[at]} / ties[at];
          }
      const double unit = dtype == mx::float32 ? 1e-6 : dtype == mx::float16 ? 6e-4 : 5e-3;
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(double{found.data<float>()[i]}, expected[i],
                    unit * (1 + std::fabs(expected[i])))
            << r->text();
    }
}

TEST(Pool, MaxJvpTakesTheTieWithTheSmallestRow) {
  const mx::array zeros = mx::zeros({4}, mx::int32), in = mx::array({3, 1, 2, 0}, {4}, mx::int32);
  const mx::array out = mx::array({0, 0, 0, 1}, {4}, mx::int32);
  const Relation::Ptr r = Relation::from_edges(in, out, zeros, 4, 3, 1);
  const mx::array x = mx::array({9.f, 2.f, 5.f, 5.f}, {4, 1}),
                  t = mx::array({1.f, 2.f, 3.f, 4.f}, {4, 1});
  const auto f = [&](const std::vector<mx::array>& a) {
    return std::vector<mx::array>{reduce_edges(a[0], r, PoolMode::max)};
  };
  const auto [y, tangents] = mx::jvp(f, {x}, {t});
  EXPECT_TRUE(mx::array_equal(y[0], mx::array({5.f, 9.f, 0.f}, {3, 1})).item<bool>());
  EXPECT_TRUE(mx::array_equal(tangents[0], mx::array({3.f, 1.f, 0.f}, {3, 1})).item<bool>());
}

// sum(max^2): the second derivative along v is 2 |max-jvp of v|^2 where there are no ties.
TEST(Pool, SecondDerivatives) {
  for (const Relation::Ptr& r : some_relations()) {
    const mx::array x = normal({static_cast<int>(r->n_in()), 3}, 1), v = normal(x.shape(), 2);
    const auto loss = [&](const mx::array& a) {
      return mx::sum(mx::square(reduce_edges(a, r, PoolMode::max)));
    };
    const auto slope = [&](const mx::array& a) {
      return mx::sum(mx::multiply(mx::grad(loss)(a), v));
    };
    const auto f = [&](const std::vector<mx::array>& a) {
      return std::vector<mx::array>{reduce_edges(a[0], r, PoolMode::max)};
    };
    const auto [y, tangents] = mx::jvp(f, {x}, {v});
    EXPECT_NEAR(product(mx::grad(slope)(x), v), 2 * product(tangents[0], tangents[0]), 1e-2)
        << r->text();
  }
}

TEST(Pool, RowGroupsHaveDerivatives) {
  cpu::Buffer<int32_t> group_of(7);
  for (const int i : {0, 1, 2, 3, 4, 5, 6}) group_of[i] = (i * 5) % 4 - 1;
  const RowGroups::Ptr groups = RowGroups::create(std::move(group_of), 5);
  for (const Reduction mode : {Reduction::sum, Reduction::mean, Reduction::max}) {
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{reduce_rows(in[0], groups, mode)};
    };
    const mx::array x = normal({7, 3}, 1), v = normal({7, 3}, 2), g = normal({5, 3}, 3);
    const auto [y, grads] = mx::vjp(f, {x}, {g});
    const auto [y2, tangents] = mx::jvp(f, {x}, {v});
    EXPECT_NEAR(product(grads[0], v), product(g, tangents[0]), 1e-4);
    const auto back = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{gather_rows(in[0], groups, 4)};
    };
    const auto [z, grads2] = mx::vjp(back, {g}, {v});
    EXPECT_TRUE(mx::allclose(grads2[0], reduce_rows(v, groups, Reduction::sum)).item<bool>());
  }
}

SparseTensor line(int n, const Triple& stride = {1, 1, 1}) {
  std::vector<int32_t> coords;
  for (int i = 0; i < n; ++i) coords.insert(coords.end(), {i % 2, i / 2, 0, 0});
  return SparseTensor(mx::array(coords.data(), {n, 4}, mx::int32), normal({n, 3}, 1), stride);
}

TEST(Pool, TensorsKeepStrideAndIdentityRules) {
  const SparseTensor x = line(12);
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  const SparseTensor down = pool3d(x, Reduction::mean, half);
  EXPECT_EQ(down.stride(), (Triple{2, 2, 2}));
  EXPECT_EQ(down.active_count(), 6);
  EXPECT_TRUE(pool3d(x, Reduction::max, half).same_coords(down));
  const SparseTensor up = pool_transpose3d(down, x, half);
  EXPECT_TRUE(up.same_coords(x));
  // Each row of x is the mean over one parent: its value.
  EXPECT_TRUE(mx::allclose(pool3d(up, Reduction::mean, half).feats(), down.feats()).item<bool>());
  EXPECT_TRUE(trilinear_upsample3d(down, x, {2, 2, 2}).same_coords(x));
  EXPECT_THROW(pool_transpose3d(x, std::nullopt, half), std::invalid_argument);
  EXPECT_THROW(trilinear_upsample3d(down, x, {0, 2, 2}), std::invalid_argument);
}

TEST(Pool, GlobalAndBroadcast) {
  const SparseTensor x = line(7);
  EXPECT_EQ(global_pool(x, Reduction::mean, 4).shape(), (mx::Shape{4, 3}));
  EXPECT_THROW(global_pool(x, Reduction::max, 4), std::invalid_argument);
  EXPECT_THROW(global_pool(x, Reduction::sum, 1), std::invalid_argument);
  const mx::array per_batch = mx::array({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3});
  const mx::array rows = mx::subtract(broadcast_add(x, per_batch).feats(), x.feats());
  EXPECT_NEAR(mx::sum(rows).item<float>(), 4 * 6 + 3 * 15, 1e-4);
  EXPECT_EQ(broadcast_cat(x, mx::zeros({2, 5})).channels(), 8);
  EXPECT_THROW(broadcast_mul(x, mx::zeros({2, 4})), std::invalid_argument);
  EXPECT_THROW(broadcast_mul(x, mx::zeros({1, 3})), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
