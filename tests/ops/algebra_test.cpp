// Joins, binary operations, concatenation, selection, duplicates and collation, against std::map;
// derivatives; errors.
#include "lattice/ops/algebra.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <array>
#include <map>

#include "lattice/ops/columns.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

using Row = std::array<int32_t, 4>;

SparseTensor tensor(const std::vector<Row>& rows, int channels, uint64_t seed,
                    ManagerPtr manager = nullptr) {
  const int n = static_cast<int>(rows.size());
  const mx::array coords(n ? rows[0].data() : nullptr, {n, 4}, mx::int32);
  return SparseTensor(coords, mx::random::normal({n, channels}, mx::float32, mx::random::key(seed)),
                      {1, 1, 1}, std::nullopt, std::move(manager));
}

const std::vector<Row> kA = {{0, 1, 2, 3}, {0, -1, 0, 0}, {1, 5, 5, 5}, {0, 7, 7, 7}};
const std::vector<Row> kB = {{0, 7, 7, 7}, {1, 1, 1, 1}, {0, 1, 2, 3}};

std::map<Row, float> by_row(const SparseTensor& x) {
  mx::array coords = x.coords(), feats = mx::contiguous(x.feats());
  mx::eval({coords, feats});
  std::map<Row, float> out;
  for (int64_t r = 0; r < x.active_count(); ++r) {
    Row row;
    std::copy_n(coords.data<int32_t>() + r * 4, 4, row.begin());
    out[row] = feats.data<float>()[r * x.channels()];
  }
  return out;
}

TEST(Algebra, BinaryOperationsOnEveryJoin) {
  const SparseTensor a = tensor(kA, 2, 1), b = tensor(kB, 2, 2);
  const auto left = by_row(a), right = by_row(b);
  const auto value = [](BinaryOp op, float u, float v) {
    switch (op) {
      case BinaryOp::add:
        return u + v;
      case BinaryOp::sub:
        return u - v;
      case BinaryOp::mul:
        return u * v;
      case BinaryOp::maximum:
        return std::max(u, v);
      default:
        return std::min(u, v);
    }
  };
  for (const Join join : {Join::inner, Join::left, Join::right, Join::outer})
    for (const BinaryOp op :
         {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::maximum, BinaryOp::minimum}) {
      std::map<Row, float> expected;
      for (const auto* side : {&left, &right})
        for (const auto& [row, v] : *side) {
          const bool in_a = left.contains(row), in_b = right.contains(row);
          if ((join == Join::inner && !(in_a && in_b)) || (join == Join::left && !in_a) ||
              (join == Join::right && !in_b))
            continue;
          expected[row] = value(op, in_a ? left.at(row) : 2.0f, in_b ? right.at(row) : -3.0f);
        }
      EXPECT_EQ(by_row(sparse_binary(a, b, op, join, {2.0f, -3.0f})), expected);
    }
}

TEST(Algebra, IdentityIsKeptAndCostsNothing) {
  const SparseTensor a = tensor(kA, 2, 1), same = a.with_feats(mx::ones({4, 2}));
  const int64_t before = alignment_count();
  EXPECT_TRUE(sparse_binary(a, same, BinaryOp::add, Join::outer).same_coords(a));
  EXPECT_TRUE(cat({a, same, a}).same_coords(a));
  EXPECT_TRUE(sparse_cat_aligned(a, same, Join::outer).same_coords(a));
  EXPECT_TRUE(sparse_intersection(a, same).same_coords(a));
  align_sparse(a, same, Join::inner);
  reindex_sparse(a, a.coord_key());
  EXPECT_EQ(alignment_count(), before);
  const SparseTensor b = tensor(kB, 2, 2);
  EXPECT_TRUE(sparse_binary(a, b, BinaryOp::add, Join::left).same_coords(a));
  EXPECT_TRUE(sparse_binary(a, b, BinaryOp::add, Join::right).same_coords(b));
  EXPECT_EQ(alignment_count(), before + 2);
  const SparseTensor part = tensor({kA[2], kA[0]}, 2, 3);
  EXPECT_TRUE(sparse_binary(a, part, BinaryOp::sub, Join::outer).same_coords(a));
}

TEST(Algebra, GradientsReachBothSides) {
  const SparseTensor a = tensor(kA, 1, 1), b = tensor(kB, 1, 2);
  const auto loss = [&](const std::vector<mx::array>& f) {
    return mx::sum(mx::square(
        sparse_binary(a.with_feats(f[0]), b.with_feats(f[1]), BinaryOp::sub, Join::outer).feats()));
  };
  const auto grads = mx::grad(loss, {0, 1})({a.feats(), b.feats()});
  // (u - v)^2: 2 (u - v) and its negative, with 0 for a missing partner.
  const mx::array u = a.feats(), v = reindex_sparse(b, a).feats();
  EXPECT_TRUE(
      mx::allclose(grads[0], mx::multiply(mx::array(2.0f), mx::subtract(u, v))).item<bool>());
  const mx::array w = reindex_sparse(a, b).feats();
  EXPECT_TRUE(mx::allclose(grads[1], mx::multiply(mx::array(2.0f), mx::subtract(b.feats(), w)))
                  .item<bool>());
}

TEST(Algebra, RowsAreSelected) {
  const SparseTensor a = tensor(kA, 2, 1);
  const SparseTensor p = prune(a, mx::array({3, 0}, {2}, mx::int32));
  EXPECT_EQ(by_row(p).at(kA[3]), by_row(a).at(kA[3]));
  EXPECT_EQ(by_row(crop(a, {-1, 0, 0}, {5, 5, 5})).size(), 3u);
  EXPECT_TRUE(crop(a, {-9, -9, -9}, {9, 9, 9}).same_coords(a));
  EXPECT_EQ(prune_mask(a, mx::array({true, false, false, true}, {4}, mx::bool_)).active_count(), 2);
  EXPECT_THROW(prune(a, mx::array({4}, {1}, mx::int32)), std::invalid_argument);
  EXPECT_THROW(prune(a, mx::array({-1}, {1}, mx::int32)), std::invalid_argument);
  EXPECT_THROW(prune_mask(a, mx::array({true}, {1}, mx::bool_)), std::invalid_argument);
}

TEST(Algebra, TopRowsPerBatch) {
  const SparseTensor a = tensor(kA, 1, 1).with_feats(mx::array({1.f, 3.f, 0.f, 3.f}, {4, 1}));
  const auto rows = [&](std::vector<int64_t> counts, double rho) {
    const mx::array r = topk_rows(a, counts, rho);
    return std::vector<int32_t>(r.data<int32_t>(), r.data<int32_t>() + r.size());
  };
  EXPECT_EQ(rows({1, 1}, 1), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(rows({4, 0}, 0.5), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(rows({9, 9}, 1), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_THROW(rows({1}, 1), std::invalid_argument);
  EXPECT_THROW(rows({1, -1}, 1), std::invalid_argument);
}

TEST(Algebra, Duplicates) {
  const std::vector<Row> rows = {{0, 1, 1, 1}, {0, 2, 2, 2}, {0, 1, 1, 1}, {1, 1, 1, 1}};
  const mx::array coords(rows[0].data(), {4, 4}, mx::int32),
      feats = mx::array({1.f, 2.f, 5.f, 9.f}, {4, 1});
  const auto first = [&](Duplicates d) {
    const SparseTensor x = sparse_from_coordinates(coords, feats, {1, 1, 1}, BatchCounts{3, 1}, d);
    EXPECT_EQ(x.active_count(), d == Duplicates::none ? 4 : 3);
    EXPECT_EQ(x.batch_counts(), (d == Duplicates::none ? BatchCounts{3, 1} : BatchCounts{2, 1}));
    return mx::slice(x.feats(), {0, 0}, {1, 1}).item<float>();
  };
  EXPECT_EQ(first(Duplicates::none), 1);
  EXPECT_EQ(first(Duplicates::first), 1);
  EXPECT_EQ(first(Duplicates::sum), 6);
  EXPECT_EQ(first(Duplicates::mean), 3);
  EXPECT_EQ(first(Duplicates::max), 5);
}

TEST(Algebra, Collate) {
  const mx::array one = mx::array({1, 2, 3}, {1, 3}, mx::int32),
                  none = mx::zeros({0, 3}, mx::int32);
  const SparseTensor x =
      sparse_collate({one, none, one}, {mx::ones({1, 2}), mx::ones({0, 2}), mx::zeros({1, 2})});
  EXPECT_EQ(x.batch_counts(), (BatchCounts{1, 0, 1}));
  EXPECT_EQ(by_row(x), (std::map<Row, float>{{{0, 1, 2, 3}, 1}, {{2, 1, 2, 3}, 0}}));
  EXPECT_THROW(sparse_collate({one}, {}), std::invalid_argument);
  EXPECT_THROW(sparse_collate({one}, {mx::ones({2, 2})}), std::invalid_argument);
}

TEST(Algebra, Errors) {
  const SparseTensor a = tensor(kA, 2, 1), b = tensor(kB, 3, 2);
  EXPECT_THROW(sparse_binary(a, b, BinaryOp::add, Join::outer), std::invalid_argument);
  EXPECT_THROW(cat({a, a.astype(mx::float16)}), std::invalid_argument);
  EXPECT_THROW(cat({}), std::invalid_argument);
  EXPECT_THROW(cat({a, a.replace(std::nullopt, std::nullopt, Triple{2, 2, 2})}),
               std::invalid_argument);
  EXPECT_THROW(gather_aligned_features(a.feats(), mx::array({4}, {1}, mx::int32)),
               std::invalid_argument);
  EXPECT_THROW(sparse_binary(tensor({kA[0], kA[0]}, 2, 1), a, BinaryOp::add, Join::outer),
               std::invalid_argument);
}

// Columns side by side and apart, against MLX's concatenation and slice: values, derivatives of
// both orders, empty ends.
TEST(Algebra, Columns) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16})
    for (const int rows : {0, 1, 700})
      for (const std::vector<int>& widths :
           std::vector<std::vector<int>>{{5}, {16, 48}, {3, 0, 2}}) {
        std::vector<mx::array> parts;
        for (size_t i = 0; i < widths.size(); ++i)
          parts.push_back(mx::astype(normal({rows, widths[i]}, i + 1), dtype));
        parts[0] =
            mx::transpose(mx::contiguous(mx::transpose(parts[0])));  // another order in memory
        const mx::array joined = join_columns(parts);
        EXPECT_TRUE(mx::array_equal(joined, mx::concatenate(parts, 1)).item<bool>());
        const int first = 1, count = joined.shape(1) - 2;
        EXPECT_TRUE(mx::array_equal(take_columns(joined, first, count),
                                    mx::slice(joined, {0, first}, {rows, first + count}))
                        .item<bool>());
      }
  // f = sum of cubes of some columns; its gradient and the derivative of that are cubes' too.
  const mx::array a = normal({9, 4}, 1), b = normal({9, 7}, 2);
  const auto f = [](bool ours) {
    return [ours](const std::vector<mx::array>& in) {
      const mx::array all = ours ? join_columns(in) : mx::concatenate(in, 1);
      const mx::array some = ours ? take_columns(all, 2, 6) : mx::slice(all, {0, 2}, {9, 8});
      return mx::sum(mx::power(some, mx::array(3.0f)));
    };
  };
  const auto slope = [&](bool ours) {
    return [g = mx::grad(f(ours), {0, 1})](const std::vector<mx::array>& in) {
      const auto grads = g(in);
      return mx::add(mx::sum(mx::square(grads[0])), mx::sum(mx::square(grads[1])));
    };
  };
  for (const size_t i : {0u, 1u}) {
    EXPECT_TRUE(
        mx::allclose(mx::grad(f(true), {0, 1})({a, b})[i], mx::grad(f(false), {0, 1})({a, b})[i])
            .item<bool>());
    EXPECT_TRUE(mx::allclose(mx::grad(slope(true), {0, 1})({a, b})[i],
                             mx::grad(slope(false), {0, 1})({a, b})[i])
                    .item<bool>());
  }
  const auto along = [&](bool ours) {
    return mx::jvp(
               [&](const std::vector<mx::array>& in) {
                 return std::vector<mx::array>{f(ours)(in)};
               },
               {a, b}, {normal({9, 4}, 3), normal({9, 7}, 4)})
        .second[0];
  };
  EXPECT_TRUE(mx::allclose(along(true), along(false)).item<bool>());
}

}  // namespace
}  // namespace lattice
