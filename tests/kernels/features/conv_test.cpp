// conv and outer against float64 sums over the lists. Cases: every instruction set of this machine,
// every storage type, odd sizes, groups, repeated edges, windows that do not fit, any number of
// threads.
#include "lattice/kernels/cpu/features/conv.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/features/reference.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/relation_lists.h"
#include "tests/support/values.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::float_type_of;
using support::on_each_target;
using support::values;

// Any edges between n_in and n_out rows, unsorted inputs, some twice.
RelationLists any_edges(int64_t n_in, int64_t n_out, int64_t n_edges) {
  support::Random random(7);
  std::vector<int32_t> in, out, k;
  for (int64_t e = 0; e < n_edges; ++e) {
    in.push_back(static_cast<int32_t>(random.below(n_in)));
    out.push_back(static_cast<int32_t>(random.below(n_out)));
    k.push_back(static_cast<int32_t>(random.below(5)));
  }
  return lists_of_edges(in.data(), out.data(), k.data(), n_edges, n_in, n_out, 5);
}

// Both are within half a unit of one rounding of the true sum: they differ by one unit at most,
// plus float32 noise.
template <typename T>
void expect_close(const std::vector<T>& found, const std::vector<T>& expected, double noise) {
  const double unit = std::is_same_v<T, float>    ? 0x1p-23
                      : std::is_same_v<T, half_t> ? 0x1p-10
                                                  : 0x1p-7;
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double a = double{widen(found[i])}, b = double{widen(expected[i])};
    ASSERT_LE(std::fabs(a - b), unit * std::max(std::fabs(b), 0x1p-10) + noise) << "element " << i;
  }
}

template <typename T>
void check(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups,
           bool with_bias) {
  SCOPED_TRACE(std::to_string(c_in) + " -> " + std::to_string(c_out) + " / " +
               std::to_string(groups));
  const int64_t in_group = c_in / groups;
  const auto x = values<T>(lists.n_in * c_in, 1), w = values<T>(lists.n_k() * in_group * c_out, 2),
             bias = values<T>(c_out, 3), g = values<T>(lists.n_out * c_out, 4);
  const T* b = with_bias ? bias.data() : nullptr;
  std::vector<T> y(static_cast<size_t>(lists.n_out * c_out)), y0 = y, u(w.size()), u0 = u;
  const ConvShape shape{c_in, c_out, groups, float_type_of<T>()};
  const DenseWeight weight(shape, w.data());
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  conv(lists, bounds, {shape, x.data(), &weight, b, y.data()});
  reference_conv(lists, weight, {shape, x.data(), &weight, b, y0.data()});
  expect_close(y, y0, 1e-4);
  outer(lists, bounds, {shape, x.data(), g.data(), u.data()});
  reference_outer(lists, {shape, x.data(), g.data(), u0.data()});
  expect_close(u, u0, 1e-3);
}

template <typename T>
void check_shapes(const RelationLists& lists) {
  for (const int64_t c : {1, 3, 5, 16, 17, 33, 64, 96}) check<T>(lists, c, c, 1, c % 2 == 1);
  check<T>(lists, 3, 32, 1, true);
  check<T>(lists, 70, 130, 1, false);
  check<T>(lists, 24, 24, 24, true);
  check<T>(lists, 12, 8, 4, true);
  check<T>(lists, 40, 96, 2, false);
}

TEST(Conv, EveryTargetStorageAndShape) {
  const RelationLists lattice = submanifold(support::random_set(300, 4, 2)),
                      any = any_edges(90, 70, 500);
  on_each_target([&] {
    for (const RelationLists* lists : {&lattice, &any}) {
      check_shapes<float>(*lists);
      check_shapes<half_t>(*lists);
      check_shapes<bfloat_t>(*lists);
    }
  });
}

// Up by 2 x 2 x 2: every output row has one edge, and rows are shuffled.
RelationLists upward(const support::Coords& coords) {
  const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
  MadeCoords made;
  return reversed(relate_downscaled(span, std::make_shared<const CoordIndex>(index_coords(span)),
                                    {.size = {2, 2, 2}, .stride = {2, 2, 2}}, &made));
}

TEST(Conv, OneEdgePerOutputRow) {
  const RelationLists up = upward(support::random_set(900, 8, 2));
  // As many edges as rows, but some rows have none and some have several.
  const RelationLists mixed = any_edges(90, 500, 500);
  ASSERT_EQ(up.n_edges, up.n_out);
  ASSERT_EQ(mixed.n_edges, mixed.n_out);
  on_each_target([&] {
    for (const RelationLists* lists : {&up, &mixed}) {
      check_shapes<float>(*lists);
      check_shapes<bfloat_t>(*lists);
    }
  });
}

// So many rows that those of later blocks are asked for early.
TEST(Conv, RowsWithThemselves) {
  RelationLists same;
  same.n_in = same.n_out = same.n_edges = 3500;
  same.lists.resize(1);
  same.lists[0].size = same.n_edges;
  on_each_target([&] {
    check<float>(same, 64, 64, 1, true);
    check<float>(same, 70, 130, 1, false);
    check<float>(same, 128, 96, 2, true);
  });
}

TEST(Conv, NoRowsAndNoEdges) {
  check_shapes<float>(submanifold(support::empty()));
  const RelationLists none = lists_of_edges(nullptr, nullptr, nullptr, 0, 4, 600, 3);
  check_shapes<float>(none);
  check_shapes<half_t>(none);
}

// Inputs so far apart that no window holds them.
TEST(Conv, RowsWithoutAWindow) {
  const RelationLists far = any_edges(60000, 300, 3000);
  check<float>(far, 64, 32, 1, true);
  check<bfloat_t>(far, 64, 32, 1, true);
  check<float>(far, 64, 64, 64, false);
}

TEST(Conv, ReversedListsAreTheAdjoint) {
  const RelationLists lists = submanifold(support::random_set(500, 5, 1)), back = reversed(lists);
  const int64_t c = 16;
  const auto x = values<float>(lists.n_in * c, 1), w = values<float>(27 * c * c, 2),
             g = values<float>(lists.n_out * c, 3);
  std::vector<float> y(x.size()), dx(x.size());
  const DenseWeight weight({c, c}, w.data()), turned({c, c}, w.data(), c * c, 1, c);
  conv(lists, tile_bounds(lists, conv_tile(lists)), {{c, c}, x.data(), &weight, nullptr, y.data()});
  conv(back, tile_bounds(back, conv_tile(back)), {{c, c}, g.data(), &turned, nullptr, dx.data()});
  double left = 0, right = 0;
  for (size_t i = 0; i < x.size(); ++i)
    left += double{g[i]} * double{y[i]}, right += double{x[i]} * double{dx[i]};
  EXPECT_NEAR(left, right, 1e-4 * (std::fabs(left) + 1));
}

TEST(Conv, SameBitsForAnyNumberOfThreads) {
  const RelationLists lists = submanifold(support::random_set(20000, 24, 2));
  const int before = thread_count();
  const int64_t c = 32;
  const auto x = values<float>(lists.n_in * c, 1), w = values<float>(27 * c * c, 2),
             g = values<float>(lists.n_out * c, 3);
  const DenseWeight weight({c, c}, w.data());
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    std::vector<float> y(x.size()), u(w.size());
    conv(lists, bounds, {{c, c}, x.data(), &weight, nullptr, y.data()});
    outer(lists, bounds, {{c, c}, x.data(), g.data(), u.data()});
    y.insert(y.end(), u.begin(), u.end());
    results.push_back(y);
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace lattice::cpu
