// Layouts and poolings: values that the manager keeps, features there and back, derivatives,
// errors.
#include "lattice/ops/layouts.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "lattice/core/errors.h"
#include "lattice/selftest/cases.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

SparseTensor tensor(int64_t n, int channels = 6) {
  Random random{5};
  const CoordinateSet coords = random_coords(random, n, 9);
  return SparseTensor(coords.array(),
                      random_values(random, {static_cast<int>(n), channels}, mx::float32).array);
}

bool same(const mx::array& a, const mx::array& b) {
  return mx::array_equal(a, b, true).item<bool>();
}

TEST(Layouts, TheManagerKeepsThem) {
  const SparseTensor x = tensor(100);
  const auto patches = attention_patches(x, 8, Curve::hilbert, false);
  EXPECT_EQ(patches,
            attention_patches(x.with_feats(mx::zeros({100, 2})), 8, Curve::hilbert, false));
  EXPECT_NE(patches, attention_patches(x, 9, Curve::hilbert, false));
  EXPECT_NE(patches, attention_patches(x, 8, Curve::z, false));
  EXPECT_NE(patches, attention_patches(x, 8, Curve::hilbert, true));
  const auto windows = attention_windows(x, {4, 4, 4}, {2, 2, 2});
  EXPECT_EQ(windows, attention_windows(x, {4, 4, 4}, {2, 2, 2}));
  EXPECT_NE(windows, attention_windows(x, {4, 4, 4}, {0, 0, 0}));
  const auto pooling = grid_pooling(x, 2, Curve::z);
  EXPECT_EQ(pooling, grid_pooling(x, 2, Curve::z));
  EXPECT_GT(x.coord_manager()->stats().bytes, patches->nbytes());
  x.coord_manager()->clear();
  EXPECT_NE(patches, attention_patches(x, 8, Curve::hilbert, false));
  EXPECT_NE(pooling, grid_pooling(x, 2, Curve::z));
  EXPECT_EQ(pooling->out, grid_pooling(x, 2, Curve::z)->out);  // the key stays
  x.coord_manager()->set_budget(1);
  EXPECT_GT(x.coord_manager()->stats().evictions, 0);
}

TEST(Layouts, RowsComeBack) {
  const SparseTensor x = tensor(101);
  for (const auto& layout : {attention_patches(x, 16, Curve::z_trans, false),
                             attention_windows(x, {5, 0, 3}, {1, 0, 2})}) {
    const mx::array there = to_slots(x.feats(), layout)[0];
    EXPECT_EQ(there.shape(0), layout->n_slots());
    EXPECT_TRUE(same(there, mx::take(x.feats(), layout->rows(), 0)));
    EXPECT_TRUE(same(to_rows(there, layout), x.feats()));
    const std::vector<mx::array> parts = to_slots(x.feats(), layout, 3);
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_TRUE(same(mx::concatenate(parts, 1), there));
  }
  EXPECT_GT(attention_patches(x, 16, Curve::z, false)->n_slots(), 101);
}

TEST(Layouts, ShrinkTakesTheSmallestCloud) {
  const std::vector<int32_t> rows = {0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 7, 5, 5, 5, 7, 6, 6, 6};
  const mx::array coords(rows.data(), {5, 4}, mx::int32);
  EXPECT_EQ(attention_patches(coords, 8, Curve::z, true)->length(), 2);
  EXPECT_EQ(attention_patches(coords, 8, Curve::z, true)->n_slots(), 6);
  EXPECT_EQ(attention_patches(coords, 8, Curve::z, false)->n_slots(), 5);
  const mx::array none = mx::zeros({0, 4}, mx::int32);
  EXPECT_EQ(attention_patches(none, 8, Curve::z, true)->n_segments(), 0);
  EXPECT_EQ(attention_windows(none, {2, 2, 2}, {0, 0, 0})->n_segments(), 0);
}

TEST(Layouts, Adjoint) {
  const SparseTensor x = tensor(60);
  const auto layout = attention_patches(x, 16, Curve::hilbert, false);
  Random random{8};
  const mx::array g =
      random_values(random, {static_cast<int>(layout->n_slots()), 6}, mx::float32).array;
  const auto run = [&](const std::vector<mx::array>& in) { return to_slots(in[0], layout); };
  const auto [out, back] = mx::vjp(run, {x.feats()}, {g});
  EXPECT_NEAR(product(out[0], g), product(x.feats(), back[0]), 1e-4);
  EXPECT_TRUE(same(mx::jvp(run, {x.feats()}, {x.feats()}).second[0], out[0]));
}

TEST(Layouts, PoolAndUnpool) {
  const SparseTensor x = tensor(200, 2);
  const auto pooling = grid_pooling(x, 2, Curve::hilbert);
  const SparseTensor y = grid_pool(x, pooling, Reduction::max);
  EXPECT_EQ(y.stride(), (Triple{2, 2, 2}));
  EXPECT_EQ(y.coord_key(), pooling->out);
  const mx::array back = grid_unpool(y.feats(), pooling);
  EXPECT_TRUE(mx::all(mx::greater_equal(back, x.feats())).item<bool>());
  const CoordinateOrdering sorted = curve_sort_coords(y.coords(), Curve::hilbert);
  EXPECT_EQ(sorted.order.shape(0), y.capacity());
  EXPECT_THROW(grid_pool(y, pooling, Reduction::max), std::invalid_argument);
  EXPECT_THROW(grid_unpool(x.feats(), pooling), std::invalid_argument);
}

TEST(Layouts, Errors) {
  const SparseTensor x = tensor(20);
  EXPECT_THROW(attention_patches(x, 0, Curve::z, false), std::invalid_argument);
  EXPECT_THROW(attention_windows(x, {-1, 1, 1}, {0, 0, 0}), std::invalid_argument);
  EXPECT_THROW(attention_windows(x, {4, 4, 4}, {4, 0, 0}), std::invalid_argument);
  EXPECT_THROW(attention_windows(x, {0, 4, 4}, {1, 0, 0}), std::invalid_argument);
  EXPECT_THROW(grid_pooling(x, 3, Curve::z), std::invalid_argument);
  EXPECT_THROW(grid_pooling(x, 1025, std::nullopt), std::invalid_argument);
  EXPECT_THROW(grid_pooling(x, 2, Curve::z, 40), std::invalid_argument);
  EXPECT_THROW(attention_patches(x, 4, Curve::z, false, -1), std::invalid_argument);
  EXPECT_THROW(grid_pooling(x, 0, Curve::z), std::invalid_argument);
  EXPECT_THROW(parse_curve("peano", "test"), std::invalid_argument);
  EXPECT_THROW(curve_codes(x.coords(), Curve::z, 1), std::invalid_argument);
  EXPECT_THROW(curve_codes(x.coords(), Curve::z, 22), std::invalid_argument);
  const auto layout = attention_patches(x, 4, Curve::z, false);
  EXPECT_THROW(to_slots(mx::zeros({19, 6}), layout), std::invalid_argument);
  EXPECT_THROW(to_slots(x.feats(), layout, 4), std::invalid_argument);
  EXPECT_THROW(to_rows(x.feats(), layout, mx::Device::cpu), std::invalid_argument)
      << "24 slots or more";
  const std::vector<int64_t> far = {0, INT64_MAX, 0, 0};
  EXPECT_THROW(attention_patches(mx::array(far.data(), {1, 4}, mx::int64), 4, Curve::z, false),
               std::overflow_error);
  EXPECT_THROW(attention_windows(mx::array(far.data(), {1, 4}, mx::int64), {2, 2, 2}, {1, 1, 1}),
               std::overflow_error);
}

}  // namespace
}  // namespace lattice
