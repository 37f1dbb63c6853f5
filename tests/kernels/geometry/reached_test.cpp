// Reached supports against loops over all rows and taps: rows, their order, edges, bounds.
#include "lattice/kernels/cpu/geometry/reached.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using Cell = std::array<int64_t, 4>;
using Edge = std::tuple<int64_t, int64_t, int64_t>;  // input row, output row, tap

struct Case {
  Kernel kernel;
  bool scatters;
  std::optional<Bounds> bounds;  // of the output
};

bool inside(const Cell& c, const std::optional<Bounds>& b) {
  for (size_t a = 0; a < 3 && b; ++a)
    if (c[a + 1] < b->low[a] || c[a + 1] >= b->high[a]) return false;
  return true;
}

// Taps outside, rows inside, first seen first.
void loops(const std::vector<Cell>& rows, const Case& c, std::vector<Cell>* out,
           std::set<Edge>* edges) {
  std::map<Cell, int64_t> number;
  for (int64_t k = 0; k < c.kernel.volume(); ++k)
    for (size_t i = 0; i < rows.size(); ++i) {
      Cell cell{rows[i][0], 0, 0, 0};
      bool fits = true;
      const Triple t = c.kernel.offset(k);
      for (size_t a = 0; a < 3; ++a) {
        const int64_t s = c.kernel.stride[a], p = c.kernel.padding[a];
        const int64_t moved =
            c.scatters ? rows[i][a + 1] * s + t[a] - p : rows[i][a + 1] + p - t[a];
        if (!c.scatters && moved % s != 0) fits = false;
        cell[a + 1] = c.scatters ? moved : moved / s;
      }
      if (!fits || !inside(cell, c.bounds)) continue;
      const auto [at, is_new] = number.emplace(cell, static_cast<int64_t>(out->size()));
      if (is_new) out->push_back(cell);
      edges->emplace(static_cast<int64_t>(i), at->second, k);
    }
}

void check(const std::vector<Cell>& rows, const Case& c) {
  std::vector<int32_t> flat;
  for (const Cell& row : rows)
    for (const int64_t v : row) flat.push_back(static_cast<int32_t>(v));
  const CoordSpan span{flat.data(), static_cast<int64_t>(rows.size()), false};
  const auto index = std::make_shared<const CoordIndex>(index_coords(span));
  std::vector<Cell> expected;
  std::set<Edge> edges;
  loops(rows, c, &expected, &edges);
  for (const RowOrder order : {RowOrder::taps, RowOrder::sorted}) {
    MadeCoords made;
    const RelationLists lists =
        relate_reached(span, index, c.kernel, c.scatters, c.bounds, order, &made);
    ASSERT_EQ(made.rows, static_cast<int64_t>(expected.size()));
    const int32_t* values = reinterpret_cast<const int32_t*>(made.data.data());
    std::vector<Cell> found;
    for (int64_t r = 0; r < made.rows; ++r)
      found.push_back({values[r * 4], values[r * 4 + 1], values[r * 4 + 2], values[r * 4 + 3]});
    if (order == RowOrder::taps) {
      EXPECT_EQ(found, expected);
    } else {
      EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
    }
    std::map<Cell, int64_t> number;
    for (size_t r = 0; r < expected.size(); ++r) number[expected[r]] = static_cast<int64_t>(r);
    std::set<Edge> got;
    for (int64_t k = 0; k < lists.n_k(); ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      for (int64_t e = 0; e < list.size; ++e) {
        const int32_t in = list.in_at(e), out = list.out_at(e);
        const int64_t row = lists.out_rows() ? lists.out_rows()[out] : out;
        got.emplace(lists.in_rows() ? lists.in_rows()[in] : in,
                    number.at(found[static_cast<size_t>(row)]), k);
      }
    }
    EXPECT_EQ(got, edges);
    EXPECT_EQ(lists.n_edges, static_cast<int64_t>(edges.size()));
  }
}

TEST(Reached, RowsOrderAndEdgesOfRandomKernels) {
  support::Random random(11);
  for (int round = 0; round < 120; ++round) {
    std::set<Cell> distinct;
    const int64_t n = round % 10 == 0 ? 0 : random.between(1, 60);
    for (int64_t i = 0; i < n; ++i)
      distinct.insert(
          {random.below(2), random.between(-3, 6), random.between(-3, 6), random.between(-3, 6)});
    std::vector<Cell> rows(distinct.begin(), distinct.end());
    if (round % 4 == 1) rows.push_back(rows.front());               // a coordinate twice
    if (round % 4 == 2) rows.push_back({1, 1 << 20, -1, 1 << 20});  // too far for bits
    for (size_t i = rows.size(); i > 1; --i)
      std::swap(rows[i - 1], rows[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    Case c{{}, random.chance(0.4), std::nullopt};
    c.kernel.centered = false;
    for (size_t a = 0; a < 3; ++a) {
      c.kernel.size[a] = random.between(1, 4);
      c.kernel.stride[a] = random.between(1, 3);
      c.kernel.padding[a] = random.between(-1, 3);
      c.kernel.dilation[a] = random.between(1, 2);
    }
    if (random.chance(0.6)) c.bounds = Bounds{{0, -1, 0}, {4, 5, 3}};
    check(rows, c);
  }
}

TEST(Reached, BoundsAreThoseOfSpconv) {
  Kernel kernel{{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, false};
  const Bounds grid{{0, 0, 0}, {41, 1600, 1408}};
  EXPECT_EQ(reached_bounds(grid, kernel, false), (Bounds{{0, 0, 0}, {21, 800, 704}}));
  kernel.padding = {0, 1, 1};
  const Bounds low = reached_bounds({{0, 0, 0}, {11, 400, 352}}, kernel, false);
  EXPECT_EQ(low, (Bounds{{0, 0, 0}, {5, 200, 176}}));
  kernel.padding = {1, 1, 1};
  EXPECT_EQ(reached_bounds({{0, 0, 0}, {4, 4, 4}}, kernel, true), (Bounds{{0, 0, 0}, {7, 7, 7}}));
  EXPECT_EQ(reached_bounds({{-3, -3, -3}, {0, 0, 0}}, kernel, false).low, (Triple{-1, -1, -1}));
}

TEST(Reached, OverflowIsNamed) {
  const std::vector<int32_t> row = {0, 2147483647, 0, 0};
  const CoordSpan span{row.data(), 1, false};
  const auto index = std::make_shared<const CoordIndex>(index_coords(span));
  const Kernel kernel{{2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}, false};
  MadeCoords made;
  EXPECT_THROW(relate_reached(span, index, kernel, true, std::nullopt, RowOrder::sorted, &made),
               std::overflow_error);
  const Bounds far{{0, 0, 0}, {10, 10, 10}};  // nothing is left inside, and nothing leaves int32
  relate_reached(span, index, kernel, true, far, RowOrder::sorted, &made);
  EXPECT_EQ(made.rows, 0);
}

}  // namespace
}  // namespace lattice::cpu
