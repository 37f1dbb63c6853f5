// Boxes, packed and wide keys: order, arithmetic, and the ends of both integer types.
#include "lattice/kernels/cpu/geometry/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Random;
using Row = std::array<int64_t, 4>;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min(),
                  kMax = std::numeric_limits<int64_t>::max();

template <typename T>
std::vector<T> flat(const std::vector<Row>& rows) {
  std::vector<T> out;
  for (const Row& row : rows)
    for (int64_t v : row) out.push_back(static_cast<T>(v));
  return out;
}

std::vector<int32_t> expected_order(const std::vector<Row>& rows) {
  std::vector<int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return rows[a] < rows[b]; });
  return order;
}

// Checks order, keys and the duplicate of an index against plain code; returns whether it is
// packed.
template <typename T>
bool check_index(const std::vector<Row>& rows) {
  const std::vector<T> data = flat<T>(rows);
  const CoordIndex index =
      index_coords({data.data(), static_cast<int64_t>(rows.size()), sizeof(T) == 8});
  const auto want = expected_order(rows);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), index.order().begin(), index.order().end()));
  int64_t duplicate = -1;
  for (size_t p = 0; p + 1 < rows.size() && duplicate < 0; ++p)
    if (rows[want[p]] == rows[want[p + 1]]) duplicate = static_cast<int64_t>(p);
  EXPECT_EQ(index.duplicate, duplicate);
  std::visit(
      [&](const auto& s) {
        for (int64_t p = 0; p < s.n; ++p)
          for (int a = 0; a < 4; ++a) EXPECT_EQ(s.space.axis(s.keys[p], a), rows[want[p]][a]);
        for (int64_t p = s.n; p < s.n + kPad; ++p) EXPECT_EQ(s.keys[p], s.space.last());
      },
      index.sorted);
  return std::holds_alternative<Sorted<PackedSpace>>(index.sorted);
}

TEST(Keys, SmallSets) {
  EXPECT_TRUE(check_index<int32_t>({}));
  EXPECT_TRUE(check_index<int64_t>({}));
  EXPECT_TRUE(check_index<int32_t>({{3, -1, 5, -7}}));
  EXPECT_TRUE(check_index<int32_t>(
      {{0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {1, -1, -1, -1}, {0, 0, 0, 0}, {0, 0, 1, 0}}));
}

TEST(Keys, EndsOfBothTypes) {
  const int64_t lo = std::numeric_limits<int32_t>::min(), hi = std::numeric_limits<int32_t>::max();
  EXPECT_TRUE(check_index<int32_t>({{0, hi, hi, hi}, {0, hi - 1, hi, hi - 9}}));
  EXPECT_TRUE(check_index<int32_t>({{0, lo, 0, 0}, {0, hi, 0, 0}}));
  EXPECT_FALSE(
      check_index<int32_t>({{0, lo, lo, lo}, {hi, hi, hi, hi}, {0, hi, lo, hi}, {0, lo, lo, lo}}));
  EXPECT_TRUE(
      check_index<int64_t>({{kMax, kMax, kMax, kMax}, {kMax - 1, kMax - 5, kMax - 2, kMax}}));
  EXPECT_TRUE(check_index<int64_t>(
      {{0, kMin, kMin, kMin}, {0, kMin + 3, kMin, kMin + 1}, {0, kMin, kMin, kMin}}));
  EXPECT_FALSE(
      check_index<int64_t>({{0, kMin, 0, 0}, {0, kMax, 0, 0}, {0, -1, 0, 0}, {0, 0, 0, 0}}));
  EXPECT_FALSE(check_index<int64_t>(
      {{0, kMin, kMax, kMin}, {kMax, kMax, kMin, kMax}, {0, kMin, kMax, kMax}}));
}

TEST(Keys, RandomRowsPackedAndWide) {
  Random random(5);
  int packed = 0;
  for (int repeat = 0; repeat < 60; ++repeat) {
    const int width = static_cast<int>(random.below(64));
    std::vector<Row> rows(static_cast<size_t>(random.below(400)));
    for (Row& row : rows) {
      row[0] = random.below(3);
      for (int a = 1; a < 4; ++a) row[a] = static_cast<int64_t>(random.bits()) >> width;
    }
    packed += check_index<int64_t>(rows);
  }
  EXPECT_GT(packed, 10);
  EXPECT_LT(packed, 50);
}

TEST(Keys, OneAndTwoThreadsAgree) {
  Random random(6);
  std::vector<Row> rows(60000);
  for (Row& row : rows)
    row = {random.below(2), random.between(-40, 40), random.between(-40, 40),
           random.between(-40, 40)};
  const auto data = flat<int32_t>(rows);
  const CoordSpan span{data.data(), static_cast<int64_t>(rows.size()), false};
  const int before = thread_count();
  set_thread_count(1);
  const CoordIndex one = index_coords(span);
  set_thread_count(2);
  const CoordIndex two = index_coords(span);
  set_thread_count(before);
  EXPECT_TRUE(std::equal(one.order().begin(), one.order().end(), two.order().begin()));
  EXPECT_EQ(one.duplicate, two.duplicate);
  EXPECT_GE(one.duplicate, 0);
}

// Moves inside the box: keys of both kinds agree with the coordinates, also where the box leaves
// int64 by the room.
TEST(Keys, StepsMoveOneAxis) {
  for (int64_t center : {int64_t{0}, kMin + 2, kMax - 2, int64_t{-123456789}}) {
    Box box;
    box.lo = {0, int128{center} - 2, int128{center} - 2, int128{center} - 2};
    box.hi = {1, int128{center} + 2, int128{center} + 2, int128{center} + 2};
    const auto packed = PackedSpace::plan(box.reach({-3, -3, -3}, {3, 3, 3}));
    ASSERT_TRUE(packed);
    const WideSpace wide = WideSpace::plan(box);
    Random random(7);
    for (int i = 0; i < 300; ++i) {
      const auto at = [&] { return center + random.between(-2, 2); };
      const auto by = [&] { return random.between(-3, 3); };
      const Row a{random.below(2), at(), at(), at()}, b{random.below(2), at(), at(), at()};
      const Triple m{by(), by(), by()};
      const auto p =
          packed->add(packed->make(a[0], a[1], a[2], a[3]), packed->step(m[0], m[1], m[2]));
      const auto w = wide.add(wide.make(a[0], a[1], a[2], a[3]), wide.step(m[0], m[1], m[2]));
      const auto pb = packed->make(b[0], b[1], b[2], b[3]);
      const auto wb = wide.make(b[0], b[1], b[2], b[3]);
      ASSERT_EQ(p < pb, w < wb);
      ASSERT_EQ(p == pb, w == wb);
      if (pb < p) continue;
      ASSERT_EQ(PackedSpace::ahead(p, pb) <= 4, WideSpace::ahead(w, wb) <= 4);
    }
  }
}

TEST(Keys, PlanRefusesWhatDoesNotFit) {
  Box box;
  box.lo = {0, 0, 0, 0};
  box.hi = {0, (int128{1} << 21) - 1, (int128{1} << 21) - 1, (int128{1} << 21) - 1};
  ASSERT_TRUE(PackedSpace::plan(box));
  EXPECT_EQ(PackedSpace::plan(box)->bits, 63);
  box.hi[0] = 1;
  EXPECT_FALSE(PackedSpace::plan(box));
  box.hi = {0, 0, 0, int128{1} << 63};
  EXPECT_FALSE(PackedSpace::plan(box));
  EXPECT_TRUE(PackedSpace::plan(Box{}));
}

TEST(Keys, RekeyKeepsCoordinates) {
  const std::vector<Row> rows{{1, 5, -3, 7}, {0, -2, 8, 1}, {0, -2, 8, 0}};
  const auto data = flat<int64_t>(rows);
  const CoordIndex index = index_coords({data.data(), 3, true});
  const Box larger = index.box.reach({-1000, 0, -7}, {5, 1 << 20, 0});
  const auto space = *PackedSpace::plan(larger);
  const auto keys = rekey(index, space);
  const auto wide_space = WideSpace::plan(larger);
  const auto wide = rekey(index, wide_space);
  ASSERT_EQ(keys.size(), 3 + kPad);
  for (int64_t p = 0; p < 3; ++p)
    for (int a = 0; a < 4; ++a) {
      EXPECT_EQ(space.axis(keys[p], a), rows[index.order()[p]][a]);
      EXPECT_EQ(wide_space.axis(wide[p], a), rows[index.order()[p]][a]);
    }
}

TEST(Boxes, Arithmetic) {
  const std::vector<int64_t> data{0, kMin, -3, kMax, 2, kMax, 5, kMin};
  const Box box = bounding_box({data.data(), 2, true});
  EXPECT_TRUE(box.lo[1] == kMin && box.hi[1] == kMax && box.hi[0] == 2 && box.lo[3] == kMin);
  const Box scaled = box.scaled({1 << 30, 2, 3});
  EXPECT_TRUE(scaled.lo[1] == int128{kMin} * (1 << 30) && scaled.hi[2] == 10);
  const Box down = box.divided({2, 2, 2});
  EXPECT_TRUE(down.lo[2] == -2 && down.hi[2] == 2 && down.lo[1] == int128{kMin} / 2);
  const Box moved = box.reach({-1, 0, 0}, {1, 0, 0});
  EXPECT_TRUE(moved.lo[1] == int128{kMin} - 1 && moved.hi[1] == int128{kMax} + 1);
  EXPECT_TRUE(moved.holds(box));
  EXPECT_FALSE(box.holds(moved));
  EXPECT_TRUE(box.holds(Box{}));
  EXPECT_FALSE(Box{}.holds(box));
  EXPECT_TRUE(Box{}.scaled({2, 2, 2}).empty() && Box{}.reach({-9, -9, -9}, {9, 9, 9}).empty());
  EXPECT_TRUE(Box{}.joined(box).holds(box) && box.joined(Box{}).holds(box));
}

TEST(Boxes, Text) {
  EXPECT_EQ(to_string(int128{0}), "0");
  EXPECT_EQ(to_string(int128{kMin} - 1), "-9223372036854775809");
  EXPECT_EQ(to_string(int128{1} << 100), "1267650600228229401496703205376");
  EXPECT_EQ(to_string(Row{0, -1, 2, kMin}), "(0, -1, 2, -9223372036854775808)");
}

TEST(Boxes, FloorDivision) {
  EXPECT_EQ(floor_div<int64_t>(-1, 2), -1);
  EXPECT_EQ(floor_div<int64_t>(-2, 2), -1);
  EXPECT_EQ(floor_div<int64_t>(3, 2), 1);
  EXPECT_EQ(floor_div<int64_t>(kMin, 1), kMin);
  EXPECT_EQ(floor_div<int64_t>(kMin, kMax), -2);
  for (int64_t divisor : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, int64_t{10},
                          int64_t{1} << 40, int64_t{1} << 62, kMax})
    for (int64_t v : {kMin, kMin + 1, int64_t{-17}, int64_t{-8}, int64_t{-1}, int64_t{0},
                      int64_t{1}, int64_t{7}, int64_t{8}, kMax})
      EXPECT_EQ(FloorDivider(divisor)(v), floor_div(v, divisor)) << v << " / " << divisor;
}

}  // namespace
}  // namespace lattice::cpu
