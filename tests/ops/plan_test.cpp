// Geometry plans: the second use builds nothing, stored plans give the same relations, hostile
// bytes are errors.
#include "lattice/core/geometry_plan.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <algorithm>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/relations.h"
#include "lattice/routes/decide.h"
#include "tests/support/random.h"

namespace lattice {
namespace {

GeometryPlan decoded(std::span<const uint8_t> data) {
  return GeometryPlan::decode(data, true, relation_builder());
}

SparseTensor scan(int n, mx::Dtype dtype = mx::int32) {
  support::Random random{7};
  std::vector<std::array<int32_t, 4>> rows;
  while (static_cast<int>(rows.size()) < n) {
    const std::array<int32_t, 4> row = {
        static_cast<int32_t>(random.below(2)), static_cast<int32_t>(random.below(12)) - 6,
        static_cast<int32_t>(random.below(12)), static_cast<int32_t>(random.below(12))};
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
  const mx::array coords =
      mx::astype(mx::array(n ? rows[0].data() : nullptr, {n, 4}, mx::int32), dtype);
  const SparseTensor plain(coords, mx::ones({n, 3}), {2, 2, 2});
  return SparseTensor(coords, mx::ones({n, 3}), {2, 2, 2}, std::nullopt, nullptr,
                      count_batches(plain.coordinate_set(), 3));
}

// Every kind of relation once: stem, down, up onto the skip, generative, onto given coordinates.
mx::array net(const SparseTensor& x, const mx::array& given) {
  const auto w = [](int k) { return mx::full({3, k, k, k, 3}, 0.01f); };
  const auto with = [](Triple size, Triple stride) {
    return ConvOptions{KernelSpec(size, stride, {0, 0, 0}, {1, 1, 1}), std::nullopt};
  };
  const SparseTensor stem = subm_conv3d(x, w(3), std::nullopt, with({3, 3, 3}, {1, 1, 1}));
  const SparseTensor low = conv3d(stem, w(2), std::nullopt, with({2, 2, 2}, {2, 2, 2}));
  ConvOptions onto = with({2, 2, 2}, {2, 2, 2});
  onto.coordinates = stem;
  const SparseTensor up = conv_transpose3d(low, w(2), std::nullopt, onto);
  const SparseTensor free =
      generative_conv_transpose3d(low, w(2), std::nullopt, with({2, 2, 2}, {2, 2, 2}));
  ConvOptions fixed = with({3, 3, 3}, {1, 1, 1});
  fixed.coordinates = x.coord_manager()->insert_coords(given, {2, 2, 2});
  const SparseTensor chosen = conv3d(free, w(3), std::nullopt, fixed);
  return mx::add(mx::sum(mx::square(up.feats())), mx::sum(chosen.feats()));
}

mx::array given_coords(mx::Dtype dtype) {
  return mx::astype(mx::array({0, 0, 0, 0, 1, 2, 3, 4}, {2, 4}, mx::int32), dtype);
}

TEST(Plan, SecondUseBuildsNothing) {
  const SparseTensor x = scan(120);
  const mx::array given = given_coords(mx::int32);
  const mx::array lazy = net(x, given);
  const GeometryPlan plan = GeometryPlan::record(x);
  EXPECT_EQ(plan.steps().size(), 5u);
  const CacheStats before = x.coord_manager()->stats();
  const size_t bytes = plan.nbytes();
  const auto loss = [&](const mx::array& f) { return net(plan.bind(f), given); };
  mx::eval({mx::grad(loss)(mx::ones({120, 3})), lazy});
  const CacheStats after = x.coord_manager()->stats();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.coordinate_sets, before.coordinate_sets);
  EXPECT_EQ(plan.nbytes(), bytes);  // no view was made either
}

TEST(Plan, WithoutGradientsIsSmaller) {
  const SparseTensor x = scan(120), y = scan(120);
  net(x, given_coords(mx::int32));
  net(y, given_coords(mx::int32));
  EXPECT_LT(GeometryPlan::record(x, false).nbytes(), GeometryPlan::record(y, true).nbytes());
}

TEST(Plan, RoundTrip) {
  for (const mx::Dtype dtype : {mx::int32, mx::int64})
    for (const int n : {0, 1, 120}) {
      const SparseTensor x = scan(n, dtype);
      const mx::array value = net(x, given_coords(dtype));
      const GeometryPlan plan = GeometryPlan::record(x);
      const routes::DecisionLog log;
      const GeometryPlan again = decoded(plan.encode());
      EXPECT_EQ(log.decisions().size(), plan.steps().size());  // each by the row of "relate"
      ASSERT_EQ(again.steps().size(), plan.steps().size());
      EXPECT_EQ(again.key().stride, plan.key().stride);
      EXPECT_EQ(again.batch_counts(), x.batch_counts());
      EXPECT_EQ(again.encode(), plan.encode());
      for (size_t i = 0; i < plan.steps().size(); ++i) {
        const Relation &a = *plan.steps()[i].relation, &b = *again.steps()[i].relation;
        EXPECT_EQ(a.kind(), b.kind());
        EXPECT_TRUE(mx::array_equal(a.edges().in_rows, b.edges().in_rows).item<bool>());
        EXPECT_TRUE(mx::array_equal(a.edges().out_rows, b.edges().out_rows).item<bool>());
        EXPECT_TRUE(mx::array_equal(a.edges().kernel_ids, b.edges().kernel_ids).item<bool>());
      }
      // The loaded plan serves a network that asks for the same relations, on made coordinates.
      const CacheStats before = again.manager()->stats();
      const SparseTensor bound = again.bind(mx::ones({n, 3}));
      const SparseTensor low =
          conv3d(subm_conv3d(bound, mx::ones({3, 3, 3, 3, 3}), std::nullopt, {}),
                 mx::ones({3, 2, 2, 2, 3}), std::nullopt,
                 {KernelSpec({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}), std::nullopt});
      EXPECT_EQ(again.manager()->stats().misses, before.misses);
      (void)value;
      (void)low;
    }
}

// Other tensors of the same manager are not part of a plan.
TEST(Plan, OnlyWhatBeginsAtX) {
  const SparseTensor x = scan(60);
  const auto other = x.coord_manager()->insert_coords(given_coords(mx::int32), {1, 1, 1});
  relation_in(*x.coord_manager(), RelationKind::submanifold, other, std::nullopt, KernelSpec(),
              "test");
  relation_in(*x.coord_manager(), RelationKind::submanifold, x.coord_key(), std::nullopt,
              KernelSpec(), "test");
  EXPECT_EQ(GeometryPlan::record(x).steps().size(), 1u);
}

// Damage anywhere is an error, never a crash; so is damage with a corrected checksum, unless the
// bytes still are a plan.
TEST(Plan, HostileBytes) {
  const SparseTensor x = scan(6);
  net(x, given_coords(mx::int32));
  const std::vector<uint8_t> good = GeometryPlan::record(x).encode();
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(decoded(std::span(good).first(n)), std::invalid_argument) << n;
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_THROW(decoded(longer), std::invalid_argument);
  int refused = 0;
  const auto attempt = [&](size_t at, uint8_t value, bool sealed) {
    std::vector<uint8_t> bytes = good;
    bytes[at] = value;
    if (sealed) {
      std::vector<uint8_t> crc;
      cpu::put(crc, cpu::crc32c(std::span(bytes).subspan(16)));
      std::copy(crc.begin(), crc.end(), bytes.begin() + 12);
    }
    try {
      decoded(bytes);
      return true;
    } catch (const std::invalid_argument&) {
    } catch (const std::overflow_error&) {
    }
    ++refused;
    return false;
  };
  for (size_t at = 0; at < good.size(); ++at)
    for (const int flip : {1, 0x80}) {
      const auto value = static_cast<uint8_t>(good[at] ^ flip);
      EXPECT_FALSE(attempt(at, value, false)) << at;
      if (at >= 16) attempt(at, value, true);
    }
  EXPECT_GT(refused, static_cast<int>(good.size()) * 2);
}

TEST(Plan, BindChecks) {
  const GeometryPlan plan = GeometryPlan::record(scan(6));
  EXPECT_THROW(plan.bind(mx::ones({5, 3})), std::invalid_argument);
  EXPECT_THROW(plan.bind(mx::ones({6})), std::invalid_argument);
}

}  // namespace
}  // namespace lattice
