// Neighbors against brute force: every set, every kind of arithmetic, bit for bit.
#include "lattice/kernels/cpu/geometry/neighbors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Random;
using Found = std::vector<std::vector<std::pair<float, int32_t>>>;

struct Points {
  std::vector<float> xyz;
  std::vector<int32_t> batch;
  Places places() const {
    return {static_cast<int64_t>(batch.size()), xyz.data(), batch.data(), {}};
  }
};
struct Lattice {
  std::vector<int64_t> rows;
  std::vector<int32_t> narrow;
  bool is64 = true;
  Places places() {
    narrow.assign(rows.begin(), rows.end());
    const int64_t n = static_cast<int64_t>(rows.size()) / 4;
    return {n,
            nullptr,
            nullptr,
            {is64 ? static_cast<const void*>(rows.data()) : narrow.data(), n, is64}};
  }
};

// d2 as the header defines it; integers by long multiplication in 128 bits and one rounding.
float squared(const Places& s, int64_t i, const Places& q, int64_t j) {
  if (s.points) {
    const float x = s.points[i * 3] - q.points[j * 3],
                y = s.points[i * 3 + 1] - q.points[j * 3 + 1],
                z = s.points[i * 3 + 2] - q.points[j * 3 + 2];
    return (x * x + y * y) + z * z;
  }
  uint128 sum = 0;
  for (int a = 1; a < 4; ++a) {
    const int128 d = int128{s.coords.at(i, a)} - int128{q.coords.at(j, a)};
    const uint128 m = static_cast<uint128>(d < 0 ? -d : d);
    if (m >> 64 || sum + m * m < sum) return std::numeric_limits<float>::infinity();
    sum += m * m;
  }
  return static_cast<float>(sum);
}

Found brute(const Places& source, const Places& queries, const NeighborQuery& wanted,
            int64_t* truncated) {
  Found out(static_cast<size_t>(queries.n));
  *truncated = 0;
  for (int64_t j = 0; j < queries.n; ++j) {
    auto& list = out[static_cast<size_t>(j)];
    for (int64_t i = 0; i < source.n; ++i)
      if (source.batch_of(i) == queries.batch_of(j))
        if (const float d = squared(source, i, queries, j); !wanted.reach || d <= *wanted.reach)
          list.emplace_back(d, static_cast<int32_t>(i));
    std::sort(list.begin(), list.end());
    if (static_cast<int64_t>(list.size()) > wanted.limit) {
      if (wanted.reach) *truncated += static_cast<int64_t>(list.size()) - wanted.limit;
      list.resize(static_cast<size_t>(wanted.limit));
    }
  }
  return out;
}

void expect_same(const Places& source, const Places* queries, const NeighborQuery& wanted,
                 const std::string& what) {
  const NeighborTree tree(source);
  const Neighbors got = queries ? tree.search(*queries, wanted) : tree.search(wanted);
  const Places& asked = queries ? *queries : source;
  int64_t truncated = 0;
  const Found want = brute(source, asked, wanted, &truncated);
  ASSERT_EQ(got.offsets.size(), asked.n + 1) << what;
  ASSERT_EQ(got.truncated, truncated) << what;
  for (int64_t q = 0; q < asked.n; ++q) {
    const auto& list = want[static_cast<size_t>(q)];
    ASSERT_EQ(got.offsets[q + 1] - got.offsets[q], static_cast<int64_t>(list.size()))
        << what << " query " << q;
    for (size_t i = 0; i < list.size(); ++i) {
      const int64_t e = got.offsets[q] + static_cast<int64_t>(i);
      ASSERT_EQ(got.distances[e], list[i].first) << what << " query " << q << " rank " << i;
      ASSERT_EQ(got.sources[e], list[i].second) << what << " query " << q << " rank " << i;
    }
  }
}

void expect_all(const Places& source, const Places& queries, float reach, const std::string& what) {
  for (const int64_t k : {1, 5, 16, 40, 150, 100000}) {
    expect_same(source, nullptr, {k, {}}, what + " own k " + std::to_string(k));
    expect_same(source, &queries, {k, {}}, what + " k " + std::to_string(k));
    expect_same(source, &queries, {k, reach}, what + " radius, at most " + std::to_string(k));
    expect_same(source, nullptr, {k, reach}, what + " own radius, at most " + std::to_string(k));
  }
}

TEST(Neighbors, ReachIsTheLargestSquareWithinTheRadius) {
  const float infinity = std::numeric_limits<float>::infinity();
  Random random(3);
  std::vector<float> radii{0, 1e-30f, 1e-22f, 1, 2, 1.5f, 1e18f, 1e20f, infinity};
  for (int n = 1; n < 50; ++n) radii.push_back(std::sqrt(static_cast<float>(n)));
  for (int i = 0; i < 200; ++i) radii.push_back(static_cast<float>(random.uniform(0, 3)));
  for (const float radius : radii) {
    const float reach = squared_reach(radius);
    EXPECT_LE(std::sqrt(reach), radius);
    if (reach == infinity) continue;
    EXPECT_GT(std::sqrt(std::nextafter(reach, infinity)), radius) << radius;
  }
  for (int n = 0; n < 50; ++n)
    EXPECT_GE(squared_reach(std::sqrt(static_cast<float>(n))), static_cast<float>(n));
}

// kind 0 random, 1 clustered, 2 collinear, 3 duplicated, 4 all equal, 5 huge, 6 on a lattice
// (ties).
Points points_of(Random& random, int64_t n, int kind, int64_t batches) {
  Points out;
  for (int64_t i = 0; i < n; ++i) {
    double p[3] = {random.uniform(-1, 1), random.uniform(-1, 1), random.uniform(-1, 1)};
    for (double& v : p) {
      if (kind == 1) v = v * 1e-3 + static_cast<double>(i % 7) * 10;
      if (kind == 3) v = std::floor(v * 2) * 0.3;
      if (kind == 4) v = 0.7;
      if (kind == 5) v = v * 3e38;
      if (kind == 6) v = std::floor(v * 4);
    }
    if (kind == 2) p[1] = p[2] = p[0];
    for (double v : p) out.xyz.push_back(static_cast<float>(v));
    out.batch.push_back(static_cast<int32_t>(random.below(batches) * 3));
  }
  return out;
}

TEST(Neighbors, PointsMatchBruteForce) {
  Random random(1);
  for (int kind = 0; kind < 7; ++kind)
    for (const int64_t n : {0, 1, 31, 32, 33, 300}) {
      const Points source = points_of(random, n, kind, 2),
                   queries = points_of(random, n / 2 + 3, kind, 3);
      const float reach = kind == 5 ? 1e38f : kind == 1 ? 1e-6f : 0.3f;
      expect_all(source.places(), queries.places(), reach,
                 "kind " + std::to_string(kind) + " n " + std::to_string(n));
    }
}

TEST(Neighbors, DistantQueries) {
  Random random(2);
  const Points source = points_of(random, 500, 0, 1);
  Points queries = points_of(random, 50, 0, 1);
  for (float& v : queries.xyz) v = v * 1000 + 5000;
  expect_all(source.places(), queries.places(), 4e7f, "far away");
}

// Boxes of every arithmetic: below 2^11, below 2^25, the ends of int32, the ends of int64.
TEST(Neighbors, CoordinatesMatchBruteForce) {
  Random random(3);
  const int64_t ends[][2] = {
      {-9, 9},
      {-1000, 1000},
      {-20000, 20000},
      {-(1 << 24), 1 << 24},
      {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()},
      {std::numeric_limits<int64_t>::min() + 5, std::numeric_limits<int64_t>::max() - 5}};
  for (const auto& [lo, hi] : ends)
    for (const bool corners : {false, true})
      for (const int64_t n : {1, 40, 200}) {
        Lattice sets[2];
        for (Lattice& set : sets) {
          set.is64 = hi > std::numeric_limits<int32_t>::max();
          for (int64_t i = 0; i < n; ++i) {
            set.rows.push_back(random.below(2));
            for (int a = 0; a < 3; ++a)
              set.rows.push_back(!corners             ? random.between(lo, hi)
                                 : random.chance(0.5) ? lo + random.below(3)
                                                      : hi - random.below(3));
          }
        }
        const float span = static_cast<float>(hi) - static_cast<float>(lo);
        expect_all(sets[0].places(), sets[1].places(), span * span * 0.1f,
                   "box " + std::to_string(lo) + " n " + std::to_string(n));
      }
}

// An index made for a small box answers queries that need wider arithmetic.
TEST(Neighbors, QueriesFarFromTheIndex) {
  Lattice near, far;
  for (int64_t i = 0; i < 60; ++i) near.rows.insert(near.rows.end(), {0, i % 5, i / 5, 3});
  for (const int64_t at : {int64_t{3}, int64_t{100000}, int64_t{1} << 40, -(int64_t{1} << 62)})
    far.rows.insert(far.rows.end(), {0, at, -at, at / 3});
  const NeighborTree tree(near.places());
  for (const int64_t k : {1, 7, 100})
    expect_same(
        near.places(),
        [&] {
          static Places p;
          p = far.places();
          return &p;
        }(),
        {k, {}}, "far");
}

TEST(Neighbors, ManyEqualRowsStayCheap) {
  Points same;
  constexpr int64_t kRows = 60000;
  same.xyz.assign(kRows * 3, 1.5f);
  same.batch.assign(kRows, 0);
  const Neighbors got = NeighborTree(same.places()).search({8, {}});
  for (int64_t q = 0; q < kRows; q += 977)
    for (int32_t i = 0; i < 8; ++i) ASSERT_EQ(got.sources[q * 8 + i], i);
}

TEST(Neighbors, OneAndTwoThreadsAgree) {
  Random random(4);
  const Points source = points_of(random, 40000, 0, 2);
  const int before = thread_count();
  std::vector<std::vector<int32_t>> sources;
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    const NeighborTree tree(source.places());
    for (const NeighborQuery& query : {NeighborQuery{7, {}}, NeighborQuery{1000, 0.002f}}) {
      const Neighbors got = tree.search(query);
      sources.emplace_back(got.sources.begin(), got.sources.end());
    }
  }
  set_thread_count(before);
  EXPECT_EQ(sources[0], sources[2]);
  EXPECT_EQ(sources[1], sources[3]);
}

}  // namespace
}  // namespace lattice::cpu
