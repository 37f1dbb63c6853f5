// Sparse maps: between dense maps and rows, sums over an axis, levels; shared relations and errors.
#include "lattice/ops/maps.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <stdexcept>
#include <vector>

#include "lattice/ops/backend.h"
#include "lattice/ops/conv.h"

namespace lattice {
namespace {

mx::array counted(mx::Shape shape) {
  int n = 1;
  for (const int size : shape) n *= size;
  return mx::reshape(mx::arange(0, n, 1, mx::float32), std::move(shape));
}

bool same(const mx::array& a, const mx::array& b) { return mx::array_equal(a, b).item<bool>(); }

TEST(Maps, RoundTrip) {
  const mx::array dense = counted({2, 3, 4, 5});
  const SparseTensor x = from_map(dense);
  EXPECT_EQ(x.bounds()->high, (Triple{1, 3, 4}));
  EXPECT_EQ(x.batch_size(), 2);
  EXPECT_TRUE(same(to_map(x), dense));
  EXPECT_TRUE(x.same_coords(from_map(mx::ones({2, 3, 4, 1}))));
  EXPECT_FALSE(x.same_coords(from_map(dense, 2)));
  release_memory();  // ends what maps of one size share
  EXPECT_FALSE(x.same_coords(from_map(dense)));
  EXPECT_EQ(from_map(dense, 2).stride(), (Triple{1, 2, 2}));
}

TEST(Maps, RowsThatAreMissingAreZero) {
  const SparseTensor x(mx::array({0, 0, 1, 1, 1, 0, 0, 1}, {2, 4}), counted({2, 1}));
  const mx::array map = to_map(x, std::array<int64_t, 2>{2, 2});
  EXPECT_EQ(map.shape(), mx::Shape({2, 2, 2, 1}));
  EXPECT_EQ(mx::sum(map).item<float>(), 1);
  EXPECT_THROW(to_map(x), std::invalid_argument);
  EXPECT_EQ(to_map(x, std::array<int64_t, 2>{2, 2}, 3).shape(0), 3);
}

TEST(Maps, AsManyRowsAsCells) {
  const SparseTensor x(mx::array({0, 0, 0, 0, 0, 0, 0, 5}, {2, 4}), counted({2, 1}));
  EXPECT_THROW(to_map(x, std::array<int64_t, 2>{1, 2}), std::invalid_argument);
}

TEST(Maps, UnsortedRowsThatFillAMap) {
  const SparseTensor x = SparseTensor(mx::array({0, 0, 0, 1, 0, 0, 0, 0}, {2, 4}), counted({2, 1}))
                             .with_bounds({{0, 0, 0}, {1, 1, 2}});
  EXPECT_TRUE(same(to_map(x), mx::array({1.f, 0.f}, {1, 1, 2, 1})));
}

TEST(Maps, ConvolutionLikeMlx) {
  mx::random::seed(0);
  const mx::array dense = mx::random::normal({2, 7, 6, 4}), w = mx::random::normal({5, 3, 3, 4});
  const SparseTensor y = subm_conv3d(from_map(dense), mx::expand_dims(w, 1), std::nullopt,
                                     {KernelSpec({1, 3, 3}), std::nullopt, 1});
  EXPECT_TRUE(
      mx::allclose(to_map(y), mx::conv2d(dense, w, {1, 1}, {1, 1}), 1e-5, 1e-4).item<bool>());
}

TEST(Maps, SumsAndLevels) {
  const mx::array rows = mx::array({0, 5, 1, 2, 0, 3, 0, 0, 0, 7, 1, 2}, {3, 4});
  const SparseTensor x(rows, counted({3, 2}));
  const SparseTensor y = sum_over(x, 0);
  EXPECT_TRUE(same(y.coords(), mx::array({0, 0, 0, 0, 0, 0, 1, 2}, {2, 4})));
  EXPECT_TRUE(same(y.feats(), mx::array({2.f, 3.f, 4.f, 6.f}, {2, 2})));
  const SparseTensor coarse(mx::array({0, 1, 1, 1}, {1, 4}), counted({1, 2}), {2, 2, 2});
  const SparseTensor merged = merge_levels({x, coarse});
  EXPECT_TRUE(same(mx::slice(merged.coords(), {3, 0}, {4, 4}), mx::array({0, 2, 2, 2}, {1, 4})));
  const SparseTensor none(mx::zeros({0, 4}, mx::int32), mx::zeros({0, 2}));
  EXPECT_EQ(sum_over(none, 2).feats().shape(), mx::Shape({0, 2}));
}

TEST(Maps, Gradients) {
  const mx::array rows = mx::array({0, 5, 1, 2, 0, 7, 1, 2}, {2, 4});
  const SparseTensor x(rows, counted({2, 1}));
  const auto loss = [&](const mx::array& f) {
    return mx::sum(mx::square(sum_over(x.with_feats(f), 0).feats()));
  };
  EXPECT_TRUE(same(mx::grad(loss)(x.feats()), mx::array({2.f, 2.f}, {2, 1})));
  const auto through = [](const mx::array& f) { return mx::sum(mx::square(to_map(from_map(f)))); };
  EXPECT_TRUE(same(mx::grad(through)(mx::ones({1, 2, 2, 1})), mx::full({1, 2, 2, 1}, 2.f)));
}

TEST(Maps, Errors) {
  const SparseTensor x(mx::array({0, 0, 0, 0}, {1, 4}), mx::ones({1, 2}));
  EXPECT_THROW(from_map(mx::ones({2, 3, 4})), std::invalid_argument);
  EXPECT_THROW(from_map(mx::ones({1, 2, 3, 4}), 0), std::invalid_argument);
  EXPECT_THROW(sum_over(x, 3), std::invalid_argument);
  EXPECT_THROW(merge_levels({}), std::invalid_argument);
  EXPECT_THROW(merge_levels({SparseTensor(x.coords(), x.feats(), {2, 2, 2}), x}),
               std::invalid_argument);
  const SparseTensor far(mx::array({0, 1 << 30, 0, 0}, {1, 4}), mx::ones({1, 2}), {2, 2, 2});
  EXPECT_THROW(merge_levels({x, far}), std::overflow_error);
  EXPECT_THROW(to_map(x, std::array<int64_t, 2>{-1, 2}), std::invalid_argument);
  EXPECT_THROW(to_map(x, std::array<int64_t, 2>{int64_t{1} << 40, int64_t{1} << 40}),
               std::invalid_argument);
  EXPECT_THROW(merge_levels({x, x.with_feats(mx::ones({1, 3}))}), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
