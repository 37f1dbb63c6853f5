// RelationLists: size, ends swapped, tile bounds, each against a direct count.
#include "lattice/kernels/cpu/geometry/relation_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

namespace lattice::cpu {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// One list of (in, out) pairs per offset; out must ascend.
RelationLists make_lists(int64_t n_in, int64_t n_out, const std::vector<Pairs>& edges,
                         bool monotone) {
  RelationLists r;
  r.n_in = n_in;
  r.n_out = n_out;
  r.monotone = monotone;
  for (const Pairs& pairs : edges) {
    const int64_t n = static_cast<int64_t>(pairs.size());
    auto ends = std::make_shared<Buffer<int32_t>>(2 * n);
    for (int64_t e = 0; e < n; ++e) {
      (*ends)[e] = pairs[e].first;
      (*ends)[n + e] = pairs[e].second;
    }
    r.lists.push_back({ends->data(), ends->data() + n, n});
    r.storage.push_back(std::move(ends));
    r.n_edges += n;
  }
  return r;
}

Pairs pairs_of(const OffsetList& list) {
  Pairs pairs;
  for (int64_t e = 0; e < list.size; ++e) pairs.emplace_back(list.in_at(e), list.out_at(e));
  return pairs;
}

std::vector<Pairs> random_edges(int64_t n_in, int64_t n_out, int n_k, int64_t per_list,
                                uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Pairs> edges(n_k);
  for (Pairs& pairs : edges) {
    for (int64_t e = 0; e < per_list; ++e) pairs.emplace_back(rng() % n_in, rng() % n_out);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](auto& a, auto& b) { return a.second < b.second; });
  }
  return edges;
}

TEST(Lists, ReversedMonotoneSharesMemory) {
  RelationLists r = make_lists(4, 5, {{{0, 1}, {2, 3}}, {}, {{1, 0}, {3, 4}}}, true);
  r.out_order = r.storage[0];
  RelationLists back = reversed(r);
  EXPECT_EQ(back.n_in, 5);
  EXPECT_EQ(back.n_out, 4);
  EXPECT_EQ(back.n_edges, 4);
  EXPECT_EQ(back.lists[0].in, r.lists[0].out);
  EXPECT_EQ(back.lists[0].out, r.lists[0].in);
  EXPECT_EQ(back.in_order, r.out_order);
  EXPECT_EQ(back.out_order, nullptr);
  EXPECT_EQ(back.nbytes(), r.nbytes());
}

TEST(Lists, ReversedSortsEachList) {
  const auto edges = random_edges(50, 30, 7, 200, 1);
  RelationLists back = reversed(make_lists(50, 30, edges, false));
  ASSERT_EQ(back.n_k(), 7);
  EXPECT_FALSE(back.monotone);
  for (int k = 0; k < 7; ++k) {
    Pairs want = edges[k];
    std::stable_sort(want.begin(), want.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto& p : want) std::swap(p.first, p.second);
    // Equal pairs are indistinguishable, so only the order by in and then out is visible.
    EXPECT_EQ(pairs_of(back.lists[k]), want) << k;
  }
}

TEST(Lists, ReversedKeepsIdentityAndFindsMonotone) {
  RelationLists r = make_lists(3, 3, {{{2, 0}, {0, 1}}, {{1, 0}}}, false);
  r.lists.push_back({nullptr, nullptr, 3});
  RelationLists back = reversed(r);
  EXPECT_EQ(back.lists[2].in, nullptr);
  EXPECT_EQ(back.lists[2].size, 3);
  EXPECT_EQ(pairs_of(back.lists[0]), (Pairs{{1, 0}, {0, 2}}));
  EXPECT_FALSE(back.monotone);
  EXPECT_TRUE(reversed(make_lists(3, 3, {{{1, 0}, {1, 2}}}, false)).monotone);
}

TEST(Lists, BytesCountSharedStorageOnce) {
  RelationLists r = make_lists(4, 4, {{{0, 1}, {2, 3}}}, true);
  const size_t before = r.nbytes();
  EXPECT_GE(before, 4 * sizeof(int32_t));
  r.in_order = r.storage[0];
  r.out_order = r.storage[0];
  EXPECT_EQ(r.nbytes(), before);
  r.in_order = std::make_shared<Buffer<int32_t>>(100);
  EXPECT_EQ(r.nbytes(), before + 400);
}

TEST(Lists, TileBoundsAgainstCount) {
  for (int64_t per_list : {0, 3, 40, 900}) {  // both the walk and the search
    for (int64_t tile : {1, 7, 64, 1000}) {
      RelationLists r = make_lists(50, 300, random_edges(50, 300, 5, per_list, 2), false);
      r.lists.push_back({nullptr, nullptr, 50});
      TileBounds b = tile_bounds(r, tile);
      ASSERT_EQ(b.n_tiles, (300 + tile - 1) / tile);
      ASSERT_EQ(b.bounds.size(), (b.n_tiles + 1) * 6);
      for (int64_t t = 0; t <= b.n_tiles; ++t) {
        for (int64_t k = 0; k < 6; ++k) {
          int64_t want = 0;
          for (int64_t e = 0; e < r.lists[k].size; ++e) want += r.lists[k].out_at(e) < t * tile;
          ASSERT_EQ(b.bounds[t * 6 + k], want)
              << "per_list " << per_list << " tile " << tile << " t " << t;
        }
      }
    }
  }
}

TEST(Lists, TileBoundsOfNothing) {
  RelationLists r = make_lists(0, 0, {{}, {}}, true);
  TileBounds b = tile_bounds(r, 256);
  EXPECT_EQ(b.n_tiles, 0);
  EXPECT_EQ(b.bounds[0], 0);
  EXPECT_EQ(b.bounds[1], 0);
  EXPECT_THROW(tile_bounds(r, 0), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu
