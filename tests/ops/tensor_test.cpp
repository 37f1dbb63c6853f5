// SparseTensor: what it accepts, what stays lazy, identity, batches, sorting, dense conversion.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "lattice/core/dense.h"
#include "lattice/core/sparse_tensor.h"

#include "tests/support/errors.h"

namespace lattice {
namespace {

mx::array rows(std::vector<int32_t> flat) {
  return mx::array(flat.data(), {static_cast<int>(flat.size() / 4), 4}, mx::int32);
}

bool same_values(const mx::array& a, const mx::array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && mx::array_equal(a, b).item<bool>();
}

mx::array ramp(int n, int c) { return mx::reshape(mx::arange(0, n * c, 1, mx::float32), {n, c}); }

using support::message;

#define EXPECT_SAYS(text, expression)                                   \
  EXPECT_NE(message([&] { expression; }).find(text), std::string::npos) \
      << message([&] { expression; })

TEST(Tensor, FieldsAndLaziness) {
  const mx::array coords = rows({0, 1, 2, 3, 1, 0, 0, 0});
  const mx::array feats = mx::add(ramp(2, 3), mx::array(1.0f));
  const SparseTensor t(coords, feats, {2, 1, 1});
  EXPECT_FALSE(t.feats().is_available());
  EXPECT_EQ(t.coords().id(), coords.id());
  EXPECT_EQ(t.feats().id(), feats.id());
  EXPECT_EQ(t.capacity(), 2);
  EXPECT_EQ(t.channels(), 3);
  EXPECT_EQ(t.batch_size(), 2);
  EXPECT_TRUE(t.coord_manager()->owns(t.coord_key()));
  EXPECT_TRUE(same_values(t.active_rows(), mx::array({2}, {1}, mx::int32)));
  EXPECT_FALSE(t.astype(mx::float16).feats().is_available());
  EXPECT_TRUE(t.astype(mx::float16).same_coords(t));
  EXPECT_LE(t.text().size(), 120u);
}

TEST(Tensor, Refusals) {
  const mx::array c = rows({0, 0, 0, 0, 0, 1, 0, 0});
  const mx::array f = ramp(2, 1);
  EXPECT_SAYS("got (2, 3)", SparseTensor(mx::zeros({2, 3}, mx::int32), f));
  EXPECT_SAYS("float32", SparseTensor(mx::zeros({2, 4}), f));
  EXPECT_SAYS("(2, C)", SparseTensor(c, ramp(3, 1)));
  EXPECT_SAYS("(2, C)", SparseTensor(c, mx::zeros({2})));
  EXPECT_SAYS("batch >= 0", SparseTensor(rows({-1, 0, 0, 0}), ramp(1, 1)));
  EXPECT_SAYS("stride", SparseTensor(c, f, {0, 1, 1}));
  EXPECT_SAYS("coord_manager", SparseTensor(c, f, {1, 1, 1}, CoordinateMapKey{}));
  const auto manager = CoordinateManager::create();
  const auto key = manager->insert_coords(c, {1, 1, 1});
  EXPECT_SAYS(
      "does not belong",
      SparseTensor(c, f, {1, 1, 1}, CoordinateMapKey{7, {1, 1, 1}, manager->id()}, manager));
  EXPECT_SAYS("stride", SparseTensor(c, f, {2, 2, 2}, key, manager));
  EXPECT_SAYS("own array",
              SparseTensor(rows({0, 0, 0, 0, 0, 1, 0, 0}), f, {1, 1, 1}, key, manager));
  EXPECT_SAYS("negative", SparseTensor(c, f, {1, 1, 1}, {}, nullptr, BatchCounts{3, -1}));
  EXPECT_SAYS("sum to 2", SparseTensor(c, f, {1, 1, 1}, {}, nullptr, BatchCounts{3}));
  EXPECT_SAYS("batch column", SparseTensor(c, f, {1, 1, 1}, {}, nullptr, BatchCounts{1, 1}));
  EXPECT_SAYS("active_rows",
              SparseTensor(c, f, {1, 1, 1}, {}, nullptr, {}, mx::array({3}, {1}, mx::int32)));
  EXPECT_SAYS("active_rows", SparseTensor(c, f, {1, 1, 1}, {}, nullptr, {}, mx::array(1)));
  EXPECT_SAYS("active_rows",
              SparseTensor(c, f, {1, 1, 1}, key, manager, {}, mx::array({1}, {1}, mx::int32)));
}

TEST(Tensor, ActiveRowsKeepThePrefix) {
  const SparseTensor t(rows({0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0}), ramp(3, 2), {1, 1, 1}, {},
                       nullptr, BatchCounts{2}, mx::array({2}, {1}, mx::int32));
  EXPECT_EQ(t.capacity(), 2);
  EXPECT_TRUE(same_values(t.feats(), ramp(2, 2)));
  EXPECT_TRUE(same_values(t.active_rows(), mx::array({2}, {1}, mx::int32)));
}

TEST(Tensor, IdentityIsManagerAndKey) {
  const mx::array c = rows({0, 0, 0, 0, 0, 1, 0, 0});
  const SparseTensor a(c, ramp(2, 1)), b(c, ramp(2, 1));
  EXPECT_FALSE(a.same_coords(b));
  EXPECT_TRUE(a.same_coords(SparseTensor(c, ramp(2, 3), {1, 1, 1}, {}, a.coord_manager())));
  EXPECT_TRUE(a.same_coords(a.with_feats(ramp(2, 5))));
  EXPECT_TRUE(a.same_coords(a.replace({}, ramp(2, 5), {})));
  EXPECT_FALSE(a.same_coords(a.replace({}, {}, Triple{2, 2, 2})));
  EXPECT_EQ(a.replace({}, {}, Triple{2, 2, 2}).coords().id(), c.id());
  const SparseTensor moved = a.replace(rows({0, 5, 0, 0, 0, 6, 0, 0}), {}, {});
  EXPECT_FALSE(a.same_coords(moved));
  EXPECT_EQ(moved.coord_manager(), a.coord_manager());
  EXPECT_TRUE(b.reuse_coords_from(a).same_coords(a));
  EXPECT_SAYS("(2, C)", a.with_feats(ramp(3, 1)));
  EXPECT_SAYS("row by row", a.reuse_coords_from(SparseTensor(rows({0, 0, 0, 0}), ramp(1, 1))));
  EXPECT_TRUE(SparseTensor::from_components(a.export_components()).same_coords(a));
}

TEST(Tensor, BatchesInAnyOrder) {
  const SparseTensor t(rows({2, 1, 0, 0, 0, 2, 0, 0, 2, 3, 0, 0}), ramp(3, 2), {1, 1, 1}, {},
                       nullptr, BatchCounts{1, 0, 2, 0});
  const auto found = t.batch_rows();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(same_values(found[2], mx::array({0, 2}, {2}, mx::int32)));
  EXPECT_EQ(found[1].size(), 0u);
  EXPECT_TRUE(
      same_values(t.decomposed_coordinates()[2], mx::array({1, 0, 0, 3, 0, 0}, {2, 3}, mx::int32)));
  EXPECT_TRUE(same_values(t.decomposed_features()[2], mx::array({0.f, 1.f, 4.f, 5.f}, {2, 2})));
  EXPECT_EQ(t.decomposed_features()[3].shape(), (mx::Shape{0, 2}));
  EXPECT_TRUE(same_values(t.batch_indices(), mx::array({2, 0, 2}, {3}, mx::int32)));
  const SparseTensor none(mx::zeros({0, 4}, mx::int64), mx::zeros({0, 2}));
  EXPECT_EQ(none.batch_size(), 0);
  EXPECT_TRUE(none.batch_rows().empty());
  EXPECT_SAYS("to count", SparseTensor(rows({2147483647, 0, 0, 0}), ramp(1, 1)).batch_rows());
}

TEST(Tensor, SortedRowsComeWithTheirOrder) {
  const SparseTensor t(rows({1, 0, 0, 0, 0, 5, 0, 0, 0, -5, 0, 0}), ramp(3, 1));
  const auto [s, order] = t.sorted();
  EXPECT_TRUE(same_values(order, mx::array({2, 1, 0}, {3}, mx::int32)));
  EXPECT_TRUE(same_values(s.coords(), rows({0, -5, 0, 0, 0, 5, 0, 0, 1, 0, 0, 0})));
  EXPECT_TRUE(same_values(s.feats(), mx::array({2.f, 1.f, 0.f}, {3, 1})));
  EXPECT_TRUE(s.sorted().first.same_coords(s));
}

TEST(Dense, ThereAndBack) {
  const SparseTensor t(rows({1, -1, 0, 2, 0, 0, 1, 0}), ramp(2, 2));
  const Triple lowest{-1, 0, 0};
  const mx::array dense = to_dense(t, std::nullopt, lowest);
  EXPECT_EQ(dense.shape(), (mx::Shape{2, 2, 2, 3, 2}));
  EXPECT_EQ(mx::sum(dense).item<float>(), 6.0f);
  EXPECT_TRUE(same_values(mx::slice(dense, {1, 0, 0, 2, 0}, {2, 1, 1, 3, 2}),
                          mx::array({0.f, 1.f}, {1, 1, 1, 1, 2})));
  const SparseTensor back = from_dense(dense, std::nullopt, {1, 1, 1}, lowest);
  EXPECT_TRUE(same_values(back.coords(), rows({0, 0, 1, 0, 1, -1, 0, 2})));
  EXPECT_TRUE(same_values(back.feats(), mx::array({2.f, 3.f, 0.f, 1.f}, {2, 2})));
  EXPECT_EQ(back.batch_counts(), (BatchCounts{1, 1}));
  EXPECT_EQ(to_dense(t, std::vector<int64_t>{3, 4, 5}, lowest).shape(), (mx::Shape{2, 3, 4, 5, 2}));
  EXPECT_EQ(to_dense(t, std::vector<int64_t>{7, 3, 4, 5, 2}, lowest).shape(),
            (mx::Shape{7, 3, 4, 5, 2}));
  EXPECT_SAYS("min_coord", to_dense(t));
  EXPECT_SAYS("outside shape", to_dense(t, std::vector<int64_t>{1, 1, 1}, lowest));
  EXPECT_SAYS("cells", to_dense(t, std::vector<int64_t>{1 << 20, 1 << 20, 1 << 20}, lowest));
  EXPECT_SAYS("duplicates", to_dense(SparseTensor(rows({0, 0, 0, 0, 0, 0, 0, 0}), ramp(2, 1))));
  EXPECT_SAYS("(B, X, Y, Z, C)", from_dense(mx::zeros({2, 2})));
  EXPECT_SAYS("mask", from_dense(dense, mx::zeros({2, 2}, mx::bool_)));
  EXPECT_THROW(from_dense(mx::ones({1, 2, 1, 1, 1}), std::nullopt, {1, 1, 1}, {2147483647, 0, 0}),
               std::overflow_error);
  const SparseTensor none(mx::zeros({0, 4}, mx::int32), mx::zeros({0, 2}));
  EXPECT_EQ(to_dense(none).shape(), (mx::Shape{0, 0, 0, 0, 2}));
  EXPECT_EQ(from_dense(mx::zeros({2, 0, 1, 1, 3})).capacity(), 0);
}

TEST(Dense, GradientsPassBothWays) {
  const mx::array coords = rows({0, 1, 0, 0, 0, 0, 0, 1});
  const auto loss = [&](const mx::array& f) {
    const mx::array dense = to_dense(SparseTensor(coords, f));
    const SparseTensor back = from_dense(dense, mx::ones({1, 2, 1, 2}, mx::bool_));
    return mx::sum(mx::multiply(back.feats(), back.feats()));
  };
  const mx::array f = mx::add(ramp(2, 2), mx::array(1.0f));
  EXPECT_TRUE(same_values(mx::grad(loss)(f), mx::multiply(f, mx::array(2.0f))));
}

}  // namespace
}  // namespace lattice
