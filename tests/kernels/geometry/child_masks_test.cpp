// Occupancy masks against a std::map of sets of children.
#include "lattice/kernels/cpu/geometry/child_masks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/cases.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Coordinate;

template <typename T>
CoordSpan span_of(const std::vector<T>& flat) {
  return {flat.data(), static_cast<int64_t>(flat.size()) / 4, sizeof(T) == 8};
}

template <typename T>
std::vector<Coordinate> parents_of(const Occupancy& o) {
  return support::rows(reinterpret_cast<const T*>(o.parents.data()), o.masks.size());
}

template <typename T>
void check_round_trip(const std::vector<Coordinate>& rows, const std::string& what) {
  std::vector<Coordinate> parents;
  std::map<Coordinate, std::set<int>> children;
  std::vector<Coordinate> parent_of_row;
  for (const Coordinate& c : rows) {
    Coordinate parent = c;
    int index = 0;
    for (size_t a = 1; a < 4; ++a) {
      parent[a] = c[a] >> 1;
      index += static_cast<int>(c[a] - 2 * parent[a]) << (a - 1);
    }
    if (!children.count(parent)) parents.push_back(parent);
    children[parent].insert(index);
    parent_of_row.push_back(parent);
  }

  const std::vector<T> flat = support::flat<T>(rows);
  const Occupancy o = occupancy_downsample(span_of(flat));
  ASSERT_EQ(parents_of<T>(o), parents) << what;
  ASSERT_EQ(o.parent_rows.size(), static_cast<int64_t>(rows.size()));
  for (int64_t r = 0; r < o.parent_rows.size(); ++r)
    ASSERT_EQ(parents[static_cast<size_t>(o.parent_rows[r])], parent_of_row[static_cast<size_t>(r)])
        << what;

  const Children expanded = occupancy_expand(o.masks.span());
  std::vector<T> child_flat(static_cast<size_t>(expanded.indices.size()) * 4);
  child_coords({o.parents.data(), o.masks.size(), sizeof(T) == 8}, expanded.parent_rows.span(),
               expanded.indices.span(), child_flat.data());
  std::vector<Coordinate> expected;
  size_t at = 0;
  for (size_t p = 0; p < parents.size(); ++p)
    for (int index : children[parents[p]]) {
      ASSERT_LT(at, static_cast<size_t>(expanded.indices.size())) << what;
      ASSERT_EQ(expanded.parent_rows[static_cast<int64_t>(at)], static_cast<int32_t>(p)) << what;
      ASSERT_EQ(expanded.indices[static_cast<int64_t>(at++)], index) << what;
      Coordinate c = parents[p];
      for (size_t a = 1; a < 4; ++a) c[a] = 2 * c[a] + (index >> (a - 1) & 1);
      expected.push_back(c);
    }
  ASSERT_EQ(support::rows(child_flat.data(), expanded.indices.size()), expected) << what;
}

TEST(Occupancy, DownsampleThenExpand) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const support::Case c = support::random_case(seed);
    std::vector<Coordinate> rows = c.in;
    for (size_t i = 0; i < c.in.size(); i += 7) rows.push_back(c.in[i]);  // duplicates are harmless
    check_round_trip<int64_t>(rows, c.text());
    if (!c.is64) check_round_trip<int32_t>(rows, c.text());
  }
  const support::Scene lidar = support::scene("lidar");  // several pieces of work
  check_round_trip<int32_t>(support::rows(lidar.coords.data(), lidar.rows()), "lidar");
}

TEST(Occupancy, BitsOfAMask) {
  const std::vector<int32_t> coords{0, -1, 0, 0, 0, -2, 0, 0, 0, -1, 1, 0, 0, -2, 0, 1};
  const Occupancy o = occupancy_downsample(span_of(coords));
  ASSERT_EQ(o.masks.size(), 1);
  EXPECT_EQ(parents_of<int32_t>(o)[0], (Coordinate{0, -1, 0, 0}));
  EXPECT_EQ(o.masks[0], (1 << 1) | (1 << 0) | (1 << 3) | (1 << 4));
}

TEST(Occupancy, EmptyAndZeroMasks) {
  EXPECT_EQ(occupancy_downsample({}).masks.size(), 0);
  EXPECT_EQ(occupancy_expand({}).indices.size(), 0);
  const std::vector<uint8_t> masks{0, 8, 0};
  const Children children = occupancy_expand(masks);
  ASSERT_EQ(children.indices.size(), 1);
  EXPECT_EQ(children.indices[0], 3);
  EXPECT_EQ(children.parent_rows[0], 1);
}

// The message of the exception of type E, or a word when there is none or another.
template <typename E, typename T>
std::string message(const std::vector<T>& parents, std::vector<int32_t> rows,
                    std::vector<int32_t> indices) {
  std::vector<T> out(rows.size() * 4);
  try {
    child_coords(span_of(parents), rows, indices, out.data());
  } catch (const E& e) {
    return e.what();
  }
  return "none";
}

TEST(Occupancy, BadChildren) {
  using Bad = std::invalid_argument;
  using Over = std::overflow_error;
  const int32_t low = INT32_MIN / 2, high = INT32_MAX / 2;
  const std::vector<int32_t> p{0, low, high, 0, 0, 0, high + 1, 0, 0, 0, 0, low - 1};
  EXPECT_EQ(message<Over>(p, {0, 0}, {7, 0}), "none");
  EXPECT_EQ(message<Over>(p, {0, 1, 2}, {0, 2, 0}),
            "y found 2147483649 at entry 1, expected -2147483648..2147483647");
  EXPECT_EQ(message<Over>(p, {2}, {4}),
            "z found -2147483649 at entry 0, expected -2147483648..2147483647");
  EXPECT_EQ(message<Bad>(p, {0, 3, -1}, {0, 0, 0}),
            "parent_rows found 3 at entry 1, expected 0..2");
  EXPECT_EQ(message<Bad>(p, {0, 0}, {0, 8}), "indices found 8 at entry 1, expected 0..7");
  EXPECT_EQ(message<Bad>(p, {0}, {-1}), "indices found -1 at entry 0, expected 0..7");
  EXPECT_EQ(message<Bad>(p, {0, 0}, {1}),
            "indices found 1 entries, expected 2, one for each of parent_rows");
  const std::vector<int64_t> wide{0, INT64_MAX, 0, 0};
  EXPECT_EQ(message<Over>(wide, {0}, {1}),
            "x found 18446744073709551615 at entry 0, expected "
            "-9223372036854775808..9223372036854775807");
}

TEST(Occupancy, FirstBadEntryOfMany) {
  const std::vector<int32_t> parents{0, 1, 2, 3};
  std::vector<int32_t> rows(100000, 0), indices(100000, 5);
  indices[70001] = 9;
  indices[90000] = 10;
  const std::string expected = "indices found 9 at entry 70001, expected 0..7";
  for (int repeat = 0; repeat < 20; ++repeat)
    EXPECT_EQ(message<std::invalid_argument>(parents, rows, indices), expected);
}

}  // namespace
}  // namespace lattice::cpu
