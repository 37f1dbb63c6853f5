// The oracle itself: negative coordinates, overflow, symmetries and adjoints, and that the case
// generator reaches the corners it promises. The library and the oracle are compared in
// tests/ops/relations_test.cpp, which also has the small cases that the contract prints.
#include "tests/support/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "tests/support/cases.h"

namespace lattice::support {
namespace {

std::vector<Coordinate> on_x(std::vector<int64_t> xs) {
  std::vector<Coordinate> out;
  for (int64_t x : xs) out.push_back({0, x, 0, 0});
  return out;
}

std::string text(const std::vector<Edge>& edges) {
  std::string out;
  for (const Edge& e : edges)
    out +=
        "(" + std::to_string(e.in) + "," + std::to_string(e.out) + "," + std::to_string(e.k) + ")";
  return out;
}

TEST(Oracle, NegativeCoordinatesFloor) {
  auto r =
      relate(Kind::forward, on_x({-1, -2, -3, 5}), {.size = {2, 1, 1}, .stride = {2, 1, 1}}, false);
  EXPECT_EQ(r.out, on_x({-1, -2, 2}));
  EXPECT_EQ(text(r.edges), "(1,0,0)(0,0,1)(2,1,1)(3,2,1)");
}

TEST(Oracle, ProducedCoordinatesOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  Spec spec{.size = {1, 2, 1}, .stride = {1, 1, 1}};
  std::vector<Coordinate> in{{0, 0, kMax - 1, 0}, {0, 0, kMax, 0}};
  auto r = relate(Kind::transposed, in, spec, false);
  ASSERT_TRUE(r.overflow);
  EXPECT_EQ(r.overflow->axis, 2);
  EXPECT_EQ(r.overflow->value, "2147483648");
  EXPECT_FALSE(relate(Kind::transposed, in, spec, true).overflow);
  EXPECT_EQ(relate(Kind::transposed, in, spec, true).out.size(), 3u);
  in.pop_back();
  EXPECT_FALSE(relate(Kind::transposed, in, spec, false).overflow);
  // int64: (2^63 - 1) * 3 does not fit; a probe of the same size finds nothing.
  std::vector<Coordinate> far{{0, 0, 0, std::numeric_limits<int64_t>::max()}};
  spec.stride = {1, 1, 3};
  r = relate(Kind::transposed, far, spec, true);
  ASSERT_TRUE(r.overflow);
  EXPECT_EQ(r.overflow->value, "27670116110564327421");
  EXPECT_TRUE(relate(Kind::target, far, spec, true, far).edges.empty());
}

TEST(Oracle, MirrorAndAdjointOfRandomCases) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Case c = random_case(seed);
    auto r = relate(c.kind, c.in, c.spec, c.is64, c.target);
    if (r.overflow) continue;
    ConvShape s{static_cast<int64_t>(c.in.size()),
                static_cast<int64_t>(r.out.size()),
                c.spec.volume(),
                4,
                6,
                2};
    if (c.kind == Kind::submanifold) {
      std::set<Edge> all(r.edges.begin(), r.edges.end());
      for (const Edge& e : r.edges)
        EXPECT_TRUE(all.count({e.out, e.in, s.n_k - 1 - e.k})) << c.text();
    }
    Values x = random_values(s.n_in * s.c_in, seed),
           gy = random_values(s.n_out * s.c_out, seed + 1);
    Values w = random_values(s.n_k * 2 * s.c_out, seed + 2);
    Values y = conv(s, r.edges, x, w);
    EXPECT_LT(adjoint_error(gy, y, conv_input_grad(s, r.edges, gy, w), x), 1e-13) << c.text();
    EXPECT_LT(adjoint_error(gy, y, outer(s, r.edges, x, gy), w), 1e-13) << c.text();
  }
}

TEST(Oracle, ConvByHand) {
  // One edge, two groups: x = (1, 2), w[0] = ((3, 4)), so y = (1 * 3, 2 * 4).
  ConvShape s{1, 1, 1, 2, 2, 2};
  std::vector<Edge> edges{{0, 0, 0}};
  EXPECT_EQ(conv(s, edges, {1, 2}, {3, 4}), (Values{3, 8}));
  EXPECT_EQ(conv_input_grad(s, edges, {1, 2}, {3, 4}), (Values{3, 8}));
  EXPECT_EQ(outer(s, edges, {1, 2}, {5, 7}), (Values{5, 14}));
  s.groups = 1;
  EXPECT_EQ(conv(s, edges, {1, 2}, {3, 4, 5, 6}), (Values{13, 16}));
  EXPECT_EQ(relative_error({1, 2}, {1, 4}), 0.5);
}

TEST(Cases, ReachTheCorners) {
  int64_t edges = 0, overflows = 0, empty = 0, single = 0, negative = 0, ends32 = 0, ends64 = 0,
          twice = 0;
  std::set<Kind> with_edges;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Case c = random_case(seed);
    EXPECT_EQ(std::set<Coordinate>(c.in.begin(), c.in.end()).size(), c.in.size()) << c.text();
    EXPECT_EQ(c.in, random_case(seed).in);
    auto r = relate(c.kind, c.in, c.spec, c.is64, c.target);
    overflows += r.overflow.has_value();
    edges += static_cast<int64_t>(r.edges.size());
    if (!r.edges.empty()) with_edges.insert(c.kind);
    empty += c.in.empty();
    single += c.in.size() == 1;
    twice += std::set<Coordinate>(c.target.begin(), c.target.end()).size() < c.target.size();
    for (const Coordinate& row : c.in) {
      negative += row[2] < 0;
      ends32 += !c.is64 && (row[1] == INT32_MIN || row[1] == INT32_MAX);
      ends64 += c.is64 && (row[1] == INT64_MIN || row[1] == INT64_MAX);
    }
  }
  EXPECT_EQ(with_edges.size(), kKinds.size());
  EXPECT_GT(edges, 100000);
  for (int64_t count : {overflows, empty, single, negative, ends32, ends64, twice})
    EXPECT_GT(count, 20);
}

}  // namespace
}  // namespace lattice::support
