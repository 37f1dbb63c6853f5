// Weight gradients through bucket sums against float64, on every instruction set, storage type, odd
// sizes, groups, any threads.
#include "lattice/kernels/cpu/features/buckets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/reference.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/rulebook.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/values.h"

namespace lattice::cpu {
namespace {

using support::float_type_of;
using support::values;

// Points in a box, several in each cell of a kernel.
RelationLists crowd(int64_t n, float grid) {
  support::Random random(3);
  std::vector<float> xyz;
  for (int64_t i = 0; i < 3 * n; ++i) xyz.push_back(static_cast<float>(random.below(1000)) * 1e-3f);
  const int32_t offsets[] = {0, static_cast<int32_t>(n)};
  const PointSpan points{xyz.data(), n, offsets, 1};
  return point_lists(points, points, {1.861f * grid, false}, grid, 3);
}

// Edges with many repeats, lists without any, and one list of every row with itself.
RelationLists given(int64_t n) {
  support::Random random(4);
  std::vector<int32_t> in, out, k;
  for (int32_t e = 0; e < 9 * n; ++e) {
    in.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(n))));
    out.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(n / 3))));
    k.push_back(static_cast<int32_t>(1 + random.below(2)));
  }
  RelationLists lists = lists_of_edges(in.data(), out.data(), k.data(), 9 * n, n, n, 5);
  lists.lists[4] = {nullptr, nullptr, n};
  lists.n_edges += n;
  lists.count_buckets();
  return lists;
}

template <typename T>
std::vector<T> run(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups) {
  const auto x = values<T>(lists.n_in * c_in, 1), y = values<T>(lists.n_out * c_out, 2);
  std::vector<T> u(static_cast<size_t>(lists.n_k() * c_in / groups * c_out));
  const FloatType storage = float_type_of<T>();
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  outer_of_buckets(lists, bounds, {{c_in, c_out, groups, storage}, x.data(), y.data(), u.data()});
  return u;
}

template <typename T>
void check(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups) {
  SCOPED_TRACE(std::to_string(c_in) + " -> " + std::to_string(c_out) + " / " +
               std::to_string(groups));
  const auto x = values<T>(lists.n_in * c_in, 1), y = values<T>(lists.n_out * c_out, 2);
  std::vector<T> exact(static_cast<size_t>(lists.n_k() * c_in / groups * c_out));
  reference_outer(lists,
                  {{c_in, c_out, groups, float_type_of<T>()}, x.data(), y.data(), exact.data()});
  const double unit = std::is_same_v<T, float>    ? 0x1p-23
                      : std::is_same_v<T, half_t> ? 0x1p-10
                                                  : 0x1p-7;
  const double noise = 0x1p-20 * std::sqrt(static_cast<double>(lists.n_edges));
  support::on_each_target([&] {
    const std::vector<T> found = run<T>(lists, c_in, c_out, groups);
    for (size_t i = 0; i < found.size(); ++i) {
      const double a = double{widen(found[i])}, b = double{widen(exact[i])};
      ASSERT_LE(std::fabs(a - b), unit * std::max(std::fabs(b), 0x1p-10) + noise)
          << "element " << i;
    }
  });
}

TEST(Buckets, MatchTheSumOverEdges) {
  const RelationLists many = crowd(160, 0.4f), odd = given(40), none = crowd(0, 1);
  ASSERT_GT(many.n_edges, 3 * many.n_buckets);
  for (const RelationLists* lists : {&many, &odd, &none})
    for (const auto& [c_in, c_out, groups] :
         {std::array<int64_t, 3>{1, 1, 1}, {17, 5, 1}, {64, 64, 1}, {6, 130, 2}}) {
      check<float>(*lists, c_in, c_out, groups);
      check<half_t>(*lists, c_in, c_out, groups);
      check<bfloat_t>(*lists, c_in, c_out, groups);
    }
}

TEST(Buckets, SameBitsForAnyThreads) {
  const RelationLists lists = crowd(6000, 0.1f);  // several parts
  const int before = thread_count();
  std::vector<std::vector<float>> all;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    all.push_back(run<float>(lists, 32, 16, 1));
  }
  set_thread_count(before);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(Buckets, PayWhereManyEdgesShareAnOutput) {
  RelationLists lists = crowd(700, 0.2f);
  EXPECT_TRUE(buckets_pay(lists, {64, 64}));
  EXPECT_FALSE(buckets_pay(lists, {64, 64, 2}));
  EXPECT_FALSE(buckets_pay(crowd(700, 0.05f), {64, 64}));
  lists.in_order = nullptr;
  EXPECT_FALSE(buckets_pay(lists, {64, 64}));
  std::vector<float> u(8);
  EXPECT_THROW(outer_of_buckets(lists, {}, {{1, 1, 1}, u.data(), u.data(), u.data()}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu
