// Coordinate sets by value, against plain code: distinct rows, look-up, floor, joins, selection.
#include "lattice/kernels/cpu/geometry/coords.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Random;
using Row = std::array<int64_t, 4>;
using Rows = std::vector<Row>;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min(),
                  kMax = std::numeric_limits<int64_t>::max();

// Rows of either dtype with the memory they live in.
struct Set {
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide;
  Rows rows;
  bool is64;

  Set(Rows r, bool use64) : rows(std::move(r)), is64(use64) {
    for (const Row& row : rows)
      for (int64_t v : row) is64 ? wide.push_back(v) : narrow.push_back(static_cast<int32_t>(v));
  }
  CoordSpan span() const {
    return {is64 ? static_cast<const void*>(wide.data()) : narrow.data(),
            static_cast<int64_t>(rows.size()), is64};
  }
  CoordIndex index() const { return index_coords(span()); }
};

// Rows with repeats; `spread` 0: a small box, 1: two far places, 2: the ends of the type (wide
// keys).
Rows random_rows(Random& random, int64_t n, int spread, bool is64) {
  const int64_t lo = is64 ? kMin : std::numeric_limits<int32_t>::min();
  const int64_t hi = is64 ? kMax : std::numeric_limits<int32_t>::max();
  Rows rows(static_cast<size_t>(n));
  for (Row& row : rows) {
    row[0] = random.below(2);
    for (int a = 1; a < 4; ++a) {
      row[a] = random.between(-3, 3);
      if (spread == 1 && a == 1) row[a] += random.below(2) * 1000000;
      if (spread == 2) row[a] = random.chance(0.5) ? lo + random.below(3) : hi - random.below(3);
    }
  }
  return rows;
}

std::map<Row, int32_t> first_rows(const Rows& rows) {
  std::map<Row, int32_t> first;
  for (size_t r = 0; r < rows.size(); ++r) first.emplace(rows[r], static_cast<int32_t>(r));
  return first;
}

std::vector<int32_t> plain(const Buffer<int32_t>& b) { return {b.begin(), b.end()}; }

template <typename F>
void each_case(const F& body) {
  Random random(11);
  for (bool is64 : {false, true})
    for (int spread : {0, 1, 2})
      for (int64_t n : {0, 1, 2, 50, 3000}) body(random, n, spread, is64);
}

void check_distinct(const Set& set) {
  const Distinct d = distinct_rows(set.index());
  std::vector<int32_t> first, inverse;
  std::map<Row, int32_t> seen;
  for (size_t r = 0; r < set.rows.size(); ++r) {
    const auto [at, fresh] = seen.emplace(set.rows[r], static_cast<int32_t>(first.size()));
    if (fresh) first.push_back(static_cast<int32_t>(r));
    inverse.push_back(at->second);
  }
  ASSERT_EQ(plain(d.first), first);
  ASSERT_EQ(plain(d.inverse), inverse);
}

TEST(Coords, Distinct) {
  each_case([](Random& random, int64_t n, int spread, bool is64) {
    check_distinct(Set(random_rows(random, n, spread, is64), is64));
  });
}

TEST(Coords, DistinctOfManyPieces) {
  Random random(12);
  Rows few = random_rows(random, 70000, 0, false);  // runs of equal keys, some across pieces
  check_distinct(Set(few, false));
  Rows equal(70000,
             Row{0, 1, 2, 3});  // one run across all pieces, which is not the first distinct row
  equal[0] = {1, 0, 0, 0};
  check_distinct(Set(equal, false));
  Rows many(70000);
  for (Row& row : many)
    row = {0, random.between(-500, 500), random.between(-500, 500), random.between(-9, 9)};
  check_distinct(Set(many, true));
}

TEST(Coords, LookupFindsTheFirstRow) {
  each_case([](Random& random, int64_t n, int spread, bool is64) {
    const Set set(random_rows(random, n, spread, is64), is64);
    const Set queries(random_rows(random, n / 2 + 40, spread, is64), is64);
    const auto first = first_rows(set.rows);
    std::vector<int32_t> want;
    for (const Row& row : queries.rows) want.push_back(first.contains(row) ? first.at(row) : -1);
    ASSERT_EQ(plain(lookup(set.index(), queries.index())), want) << n << " rows, spread " << spread;
  });
}

TEST(Coords, LookupAcrossDistantSets) {
  // Neither box holds the other, and both together need wide keys.
  const Set a({{0, kMin, kMin, kMin}, {0, kMin, kMin, kMin + 1}}, true);
  const Set b({{0, kMax, kMax, kMax}, {0, kMin, kMin, kMin + 1}, {1, kMin, kMin, kMin}}, true);
  EXPECT_EQ(plain(lookup(a.index(), b.index())), (std::vector<int32_t>{-1, 1, -1}));
  EXPECT_EQ(plain(lookup(b.index(), a.index())), (std::vector<int32_t>{-1, 1}));
  const Set far({{0, 1 << 30, 1 << 30, 0}}, false), near({{0, -5, 0, 0}, {0, 0, 0, 0}}, false);
  EXPECT_EQ(plain(lookup(far.index(), near.index())), (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(plain(lookup(near.index(), far.index())), (std::vector<int32_t>{-1}));
}

TEST(Coords, Align) {
  each_case([](Random& random, int64_t n, int spread, bool is64) {
    const auto unique = [&] {
      Rows rows;
      std::map<Row, int> seen;
      for (const Row& row : random_rows(random, n, spread, is64))
        if (seen.emplace(row, 0).second) rows.push_back(row);
      return rows;
    };
    const Set lhs(unique(), is64), rhs(unique(), is64);
    const auto in_lhs = first_rows(lhs.rows), in_rhs = first_rows(rhs.rows);
    const auto at = [](const std::map<Row, int32_t>& map, const Row& row) {
      return map.contains(row) ? map.at(row) : -1;
    };
    for (Join join : {Join::inner, Join::left, Join::right, Join::outer}) {
      std::vector<std::pair<int32_t, int32_t>> want, got;
      if (join != Join::right)
        for (size_t r = 0; r < lhs.rows.size(); ++r)
          if (int32_t other = at(in_rhs, lhs.rows[r]); join != Join::inner || other >= 0)
            want.emplace_back(r, other);
      if (join == Join::right || join == Join::outer)
        for (size_t r = 0; r < rhs.rows.size(); ++r)
          if (int32_t other = at(in_lhs, rhs.rows[r]); join == Join::right || other < 0)
            want.emplace_back(other, r);
      const Alignment a = align(lhs.index(), rhs.index(), join);
      ASSERT_EQ(a.lhs.size(), a.rhs.size());
      for (int64_t i = 0; i < a.lhs.size(); ++i) got.emplace_back(a.lhs[i], a.rhs[i]);
      ASSERT_EQ(got, want) << "join " << static_cast<int>(join);
    }
  });
}

TEST(Coords, FloorAndTake) {
  const Set set({{0, -1, -2, -3}, {1, kMin, kMax, 7}, {2, 0, 5, kMax}}, true);
  std::vector<int64_t> out(12);
  floor_coords(set.span(), {2, 1, 3}, out.data());
  EXPECT_EQ(out, (std::vector<int64_t>{0, -1, -2, -1, 1, kMin / 2, kMax, 2, 2, 0, 5, kMax / 3}));
  floor_coords(set.span(), {kMax, kMax, kMax}, out.data());
  EXPECT_EQ(out[5], -2);
  const Buffer<int32_t> rows = rows_where(std::vector<uint8_t>{1, 0, 9});
  EXPECT_EQ(plain(rows), (std::vector<int32_t>{0, 2}));
  take_rows(set.span(), rows.span(), out.data());
  EXPECT_EQ(std::vector<int64_t>(out.begin(), out.begin() + 8),
            (std::vector<int64_t>{0, -1, -2, -3, 2, 0, 5, kMax}));
  const int32_t lowest = std::numeric_limits<int32_t>::min();
  const Set narrow({{0, lowest, -7, 7}}, false);
  std::vector<int32_t> small(4);
  floor_coords(narrow.span(), {3, 3, int64_t{1} << 40}, small.data());
  EXPECT_EQ(small, (std::vector<int32_t>{0, -715827883, -3, 0}));
}

TEST(Coords, OneAndTwoThreadsAgree) {
  Random random(13);
  Rows a(60000), b(60000);
  for (Rows* rows : {&a, &b})
    for (Row& row : *rows)
      row = {random.below(2), random.between(-60, 60), random.between(-60, 60),
             random.between(-20, 20)};
  const Set lhs(a, false), rhs(b, false);
  const int before = thread_count();
  std::vector<std::vector<int32_t>> got[2];
  for (int threads : {1, 2}) {
    set_thread_count(threads);
    const CoordIndex l = lhs.index(), r = rhs.index();
    const Distinct d = distinct_rows(l);
    const Alignment outer = align(l, r, Join::outer), inner = align(l, r, Join::inner);
    got[threads - 1] = {plain(d.first),   plain(d.inverse), plain(outer.lhs),
                        plain(outer.rhs), plain(inner.lhs), plain(inner.rhs)};
  }
  set_thread_count(before);
  EXPECT_EQ(got[0], got[1]);
}

}  // namespace
}  // namespace lattice::cpu
