// Coordinate sets as MLX arrays: values, dtypes, shapes, sharing of the index, errors. Values at
// large are compared with plain code in tests/kernels/coords_test.cpp and
// tests/python/test_coords.py.
#include "lattice/ops/coords.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <vector>

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice {
namespace {

using Flat = std::vector<int64_t>;

mx::array coords(const Flat& values, mx::Dtype dtype = mx::int32) {
  return mx::astype(mx::array(values.data(), {static_cast<int>(values.size() / 4), 4}, mx::int64),
                    dtype);
}

Flat values(const mx::array& a) {
  mx::array wide = mx::contiguous(mx::astype(a, mx::int64));
  wide.eval();
  return Flat(wide.data<int64_t>(), wide.data<int64_t>() + wide.size());
}

template <typename Error, typename F>
std::string message(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error of this type";
}

const Flat kLhs{0, 5, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 1, 2, 0, 0};
const Flat kRhs{1, 2, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0};

class CoordsOps : public ::testing::TestWithParam<mx::Dtype> {
 protected:
  mx::array make(const Flat& v) const { return coords(v, GetParam()); }
};

TEST_P(CoordsOps, SetOperations) {
  const mx::array lhs = make(kLhs), rhs = make(kRhs);
  EXPECT_EQ(values(union_coords(lhs, rhs)), (Flat{0, 5, 0, 0, 0, 1, 0, 0, 1, 2, 0, 0, 0, 9, 0, 0}));
  EXPECT_EQ(values(intersection_coords(lhs, rhs)), (Flat{1, 2, 0, 0}));
  EXPECT_EQ(values(difference_coords(lhs, rhs)), (Flat{0, 5, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(union_coords(lhs, rhs).dtype(), GetParam());
  EXPECT_EQ(values(lookup_coords(lhs, rhs)), (Flat{3, -1, -1}));
  EXPECT_EQ(values(lookup_coords(rhs, lhs)), (Flat{-1, -1, -1, 0}));
  EXPECT_EQ(values(contains_coords(lhs, rhs)), (Flat{1, 0, 0}));
  EXPECT_EQ(contains_coords(lhs, rhs).dtype(), mx::bool_);
  EXPECT_EQ(values(inverse_map(lhs, rhs)), (Flat{3, -1, -1}));
}

TEST_P(CoordsOps, Downsample) {
  const mx::array c = make({0, -1, 3, 4, 0, 0, 3, 5, 0, -2, 2, 4, 2, -1, 3, 4});
  EXPECT_EQ(values(downsample_coords(c)), (Flat{0, -1, 1, 2, 0, 0, 1, 2, 2, -1, 1, 2}));
  EXPECT_EQ(values(downsample_coords(c, {1, 4, 5})),
            (Flat{0, -1, 0, 0, 0, 0, 0, 1, 0, -2, 0, 0, 2, -1, 0, 0}));
}

TEST_P(CoordsOps, Alignment) {
  const mx::array lhs = make({0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0}),
                  rhs = make({0, 3, 0, 0, 0, 2, 0, 0});
  const mx::array two({2}, {1}, mx::int32);
  const SparseAlignment outer = build_sparse_alignment(lhs, two, rhs, std::nullopt, Join::outer);
  EXPECT_EQ(values(outer.coords), (Flat{0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(values(outer.lhs_rows), (Flat{0, 1, -1}));
  EXPECT_EQ(values(outer.rhs_rows), (Flat{-1, 1, 0}));
  EXPECT_EQ(values(outer.active_rows), (Flat{3}));
  const SparseAlignment right =
      build_sparse_alignment(lhs, std::nullopt, rhs, std::nullopt, Join::right);
  EXPECT_EQ(right.coords.id(), rhs.id());  // nothing to copy
  EXPECT_EQ(values(right.lhs_rows), (Flat{-1, 1}));
}

TEST_P(CoordsOps, OrdersAndOccupancy) {
  const mx::array c = make({0, 1, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(values(morton_order(c)), (Flat{2, 1, 0, 3}));
  const CoordinateOrdering sorted = morton_sort_coords(c);
  EXPECT_EQ(values(sorted.inverse_rows), (Flat{2, 1, 0, 3}));
  EXPECT_EQ(values(mx::take(c, sorted.order, 0)), values(sorted.coords));
  EXPECT_EQ(values(morton_codes(make({1, 1, 2, 4}))),
            (Flat{(int64_t{1} << 60) + 1 + (1 << 4) + (1 << 8)}));
  const SparseOccupancy o = occupancy_downsample(c);
  EXPECT_EQ(values(o.coords), (Flat{0, 0, 0, 0, 0, -1, 0, 0}));
  EXPECT_EQ(values(o.occupancy), (Flat{1 + 8 + 16, 2}));
  EXPECT_EQ(values(o.parent_rows), (Flat{0, 0, 1, 0}));
  EXPECT_EQ(values(o.child_indices), (Flat{3, 0, 1, 4}));
  const OccupancyExpansion e = occupancy_expand(o.coords, o.occupancy);
  EXPECT_EQ(values(e.coords), (Flat{0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, -1, 0, 0}));
  EXPECT_EQ(values(child_coords_from_indices(o.coords, o.parent_rows, o.child_indices)), values(c));
}

INSTANTIATE_TEST_SUITE_P(Dtype, CoordsOps, ::testing::Values(mx::int32, mx::int64));

TEST(CoordsLike, ASetIsSortedOnce) {
  const CoordinateSet set(coords(kLhs), "test");
  lookup_coords(set, coords(kRhs));
  const auto* index = set.index().get();
  lookup_coords(set, coords(kRhs));
  EXPECT_EQ(set.index().get(), index);
  EXPECT_EQ(values(intersection_coords(set, set)), (Flat{0, 5, 0, 0, 0, 1, 0, 0, 1, 2, 0, 0}));
}

TEST(CoordsErrors, NameTheOperationAndTheArgument) {
  const mx::array good = coords(kRhs);
  EXPECT_EQ(
      message<std::invalid_argument>([&] { union_coords(good, mx::zeros({2, 3}, mx::int32)); }),
      "[union_coords] rhs must have shape (N, 4), got (2, 3); rows are (batch, x, y, z), and "
      "ops.sparse_collate adds the batch");
  EXPECT_EQ(message<std::invalid_argument>([&] { lookup_coords(good, coords(kLhs, mx::int64)); }),
            "[lookup_coords] coords and queries must have equal dtypes, got int32 and int64");
  EXPECT_EQ(message<std::invalid_argument>([&] { downsample_coords(good, {2, 0, 2}); }),
            "[downsample_coords] stride must be >= 1, got (2, 0, 2)");
  EXPECT_EQ(message<std::invalid_argument>([&] { parse_join("cross", "op"); }),
            "[op] join must be inner, left, right or outer, got 'cross'");
  EXPECT_NE(message<std::overflow_error>([&] {
              morton_codes(coords({0, 0, 1 << 20, 0}));
            }).find("[morton_codes] y"),
            std::string::npos);
  EXPECT_NE(message<std::invalid_argument>([&] {
              build_sparse_alignment(good, std::nullopt, good, std::nullopt, Join::inner);
            }).find("rows 1 and 2 are both (0, 9, 0, 0)"),
            std::string::npos);
}

}  // namespace
}  // namespace lattice
