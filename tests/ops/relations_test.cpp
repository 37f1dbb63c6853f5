// Relations of all kinds against the oracle, their views against their edges, and the manager's
// cache.
#include "lattice/ops/relations.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/ops/coords.h"
#include "tests/support/cases.h"
#include "tests/support/workloads.h"

namespace lattice {
namespace {

using support::Edge;

mx::array to_array(const std::vector<support::Coordinate>& rows, bool is64) {
  const mx::Shape shape{static_cast<int>(rows.size()), 4};
  return is64 ? mx::array(support::flat<int64_t>(rows).data(), shape, mx::int64)
              : mx::array(support::flat<int32_t>(rows).data(), shape, mx::int32);
}

mx::array line(std::vector<int32_t> xs) {
  std::vector<int32_t> flat;
  for (int32_t x : xs) flat.insert(flat.end(), {0, x, 0, 0});
  return mx::array(flat.data(), {static_cast<int>(xs.size()), 4}, mx::int32);
}

std::vector<support::Coordinate> to_rows(const CoordinateSet& set) {
  std::vector<support::Coordinate> out;
  for (int64_t r = 0; r < set.rows(); ++r) out.push_back(set.span().row(r));
  return out;
}

std::vector<Edge> to_edges(const Edges& e) {
  std::vector<Edge> out;
  for (size_t i = 0; i < e.in_rows.size(); ++i)
    out.push_back({e.in_rows.data<int32_t>()[i], e.out_rows.data<int32_t>()[i],
                   e.kernel_ids.data<int32_t>()[i]});
  return out;
}

std::vector<int32_t> to_vector(const mx::array& a) {
  if (a.size() == 0) return {};
  return {a.data<int32_t>(), a.data<int32_t>() + a.size()};
}

Relation::Ptr build(const support::Case& c) {
  const mx::array in = to_array(c.in, c.is64), target = to_array(c.target, c.is64);
  const KernelSpec spec(c.spec.size, c.spec.stride, c.spec.padding, c.spec.dilation);
  const bool aims = c.kind == support::Kind::target || c.kind == support::Kind::target_transposed;
  return relation(static_cast<RelationKind>(c.kind), in, spec,
                  aims ? std::optional(target) : std::nullopt);
}

// Groups of a CSR view hold exactly the edges with that key, ascending.
void check_csr(const EdgeGroups& csr, const mx::array& keys, int64_t groups) {
  const auto offsets = to_vector(csr.row_offsets), ids = to_vector(csr.edge_ids),
             key = to_vector(keys);
  ASSERT_EQ(offsets.size(), static_cast<size_t>(groups) + 1);
  ASSERT_EQ(ids.size(), key.size());
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), static_cast<int32_t>(ids.size()));
  for (int64_t g = 0; g < groups; ++g)
    for (int32_t i = offsets[g]; i < offsets[g + 1]; ++i) {
      EXPECT_EQ(key[ids[i]], g);
      EXPECT_TRUE(i == offsets[g] || ids[i - 1] < ids[i]);
    }
}

// The lists of tiles hold every edge once, in the tile of its position, ascending.
void check_tiles(const Relation& r) {
  const auto bounds = to_vector(r.tile_lists().bounds), in = to_vector(r.tile_lists().in_rows),
             positions = to_vector(r.tile_lists().positions),
             order = to_vector(r.tile_lists().order);
  const int64_t n_k = r.n_kernels(), n_tiles = (r.n_out() + 63) / 64;
  ASSERT_EQ(static_cast<int64_t>(bounds.size()), (n_tiles + 1) * n_k);
  std::vector<std::tuple<int64_t, int64_t, int64_t>> found, expected;
  for (int64_t t = 0; t < n_tiles; ++t)
    for (int64_t k = 0; k < n_k; ++k)
      for (int32_t i = bounds[t * n_k + k]; i < bounds[(t + 1) * n_k + k]; ++i) {
        EXPECT_EQ(positions[i] / 64, t);
        EXPECT_TRUE(i == bounds[t * n_k + k] || positions[i - 1] <= positions[i]);
        found.emplace_back(in[i], order[positions[i]], k);
      }
  for (const Edge& e : to_edges(r.edges())) expected.emplace_back(e.in, e.out, e.k);
  std::sort(found.begin(), found.end()), std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

void check_views(const Relation& r) {
  check_tiles(r);
  const Edges& e = r.edges();
  check_csr(r.output_csr(), e.out_rows, r.n_out());
  check_csr(r.input_csr(), e.in_rows, r.n_in());
  check_csr(r.kernel_csr(), e.kernel_ids, r.n_kernels());
  std::set<int64_t> used, reached;
  for (const Edge& edge : to_edges(e)) used.insert(edge.in), reached.insert(edge.out);
  EXPECT_EQ(r.coverage().unused_inputs, r.n_in() - static_cast<int64_t>(used.size()));
  EXPECT_EQ(r.coverage().empty_outputs, r.n_out() - static_cast<int64_t>(reached.size()));
}

void check_maps(const Relation& r) {
  const auto map = to_vector(r.implicit_gemm().out_in_map);
  const mx::array& masks = r.implicit_gemm().row_masks;
  const int64_t n_k = r.n_kernels(), words = (n_k + 31) / 32;
  std::vector<int32_t> expected(static_cast<size_t>(r.n_out() * n_k), -1);
  std::vector<uint32_t> bits(static_cast<size_t>(r.n_out() * words), 0);
  for (const Edge& e : to_edges(r.edges())) {
    expected[e.out * n_k + e.k] = static_cast<int32_t>(e.in);
    bits[e.out * words + e.k / 32] |= 1u << (e.k % 32);
  }
  EXPECT_EQ(map, expected);
  EXPECT_TRUE(bits.empty() || std::equal(bits.begin(), bits.end(), masks.data<uint32_t>()));
  if (n_k > 32) {
    EXPECT_THROW(r.sorted_implicit_gemm(), std::invalid_argument);
    return;
  }
  const SortedImplicitGemm& s = r.sorted_implicit_gemm();
  const auto order = to_vector(s.reorder_rows), sorted = to_vector(s.sorted_out_in_map()),
             by_k = to_vector(s.sorted_kv_out_in_map);
  const int64_t n = r.n_out();
  std::vector<uint32_t> tiles(static_cast<size_t>((n + 63) / 64 * 4), 0);
  for (int64_t p = 0; p < n; ++p) {
    EXPECT_TRUE(p == 0 ||
                std::pair(bits[order[p - 1]], order[p - 1]) < std::pair(bits[order[p]], order[p]));
    tiles[p / 16] |= bits[order[p]];
    for (int64_t k = 0; k < n_k; ++k) {
      EXPECT_EQ(sorted[p * n_k + k], map[order[p] * n_k + k]);
      EXPECT_EQ(by_k[k * n + p], sorted[p * n_k + k]);
    }
  }
  EXPECT_EQ(s.tile_masks.size(), tiles.size());
  EXPECT_TRUE(tiles.empty() ||
              std::equal(tiles.begin(), tiles.end(), s.tile_masks.data<uint32_t>()));
}

void check_reversed(const Relation::Ptr& r) {
  const Relation::Ptr back = r->reversed();
  EXPECT_EQ(back->reversed(), r);
  EXPECT_EQ(back->n_in(), r->n_out());
  std::vector<Edge> expected;
  for (const Edge& e : to_edges(r->edges())) expected.push_back({e.out, e.in, e.k});
  std::sort(expected.begin(), expected.end(), [](const Edge& a, const Edge& b) {
    return std::tie(a.out, a.k, a.in) < std::tie(b.out, b.k, b.in);
  });
  EXPECT_EQ(to_edges(back->edges()), expected);
  check_views(*back);
}

TEST(Relations, OracleOverRandomCases) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const support::Case c = support::random_case(seed);
    SCOPED_TRACE(c.text());
    const support::RelationOracle expected =
        support::relate(c.kind, c.in, c.spec, c.is64, c.target);
    if (expected.overflow) {
      try {
        build(c);
        ADD_FAILURE() << "no overflow";
      } catch (const std::overflow_error& e) {
        EXPECT_NE(std::string(e.what()).find(c.is64 ? "leaves the range of int64"
                                                    : "leaves the range of int32"),
                  std::string::npos)
            << e.what();
      }
      continue;
    }
    const Relation::Ptr r = build(c);
    EXPECT_EQ(to_rows(r->out_coords()), expected.out);
    EXPECT_EQ(to_edges(r->edges()), expected.edges);
    EXPECT_EQ(r->edge_count(), static_cast<int64_t>(expected.edges.size()));
    check_views(*r);
    check_maps(*r);
    check_reversed(r);
    if (HasFailure()) return;
  }
}

TEST(Relations, SmallCasesOfTheContract) {
  const auto forward = relation(RelationKind::forward, line({0, 1, 2}),
                                {{3, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(to_edges(forward->edges()),
            (std::vector<Edge>{
                {0, 0, 1}, {1, 0, 2}, {0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {1, 2, 0}, {2, 2, 1}}));
  const auto strided = relation(RelationKind::forward, line({0, 1, 2}),
                                {{2, 1, 1}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(to_edges(strided->edges()), (std::vector<Edge>{{0, 0, 1}, {1, 1, 0}, {2, 1, 1}}));
  EXPECT_EQ(strided->coverage().unused_inputs, 0);
  const auto up = relation(RelationKind::transposed, line({0, 1}),
                           {{3, 1, 1}, {2, 1, 1}, {0, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(to_edges(up->edges()),
            (std::vector<Edge>{{0, 0, 0}, {0, 1, 1}, {1, 2, 0}, {0, 2, 2}, {1, 3, 1}, {1, 4, 2}}));
  const auto dropping =
      relation(RelationKind::forward, line({0, 1}), {{1, 1, 1}, {2, 1, 1}, {0, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(dropping->coverage().unused_inputs, 1);
}

TEST(Relations, SameBitsForAnyNumberOfThreads) {
  const auto scene = support::lidar();
  const mx::array coords(scene.data(), {static_cast<int>(scene.size() / 4), 4}, mx::int32);
  const int before = cpu::thread_count();
  std::vector<std::vector<int32_t>> runs;
  for (int threads : {1, 2, 5}) {
    cpu::set_thread_count(threads);
    std::vector<int32_t> all;
    for (const auto& r :
         {relation(RelationKind::submanifold, coords, {}),
          relation(RelationKind::forward, coords, {{2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}}),
          relation(RelationKind::transposed, coords, {{2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}})})
      for (const mx::array& a :
           {r->edges().in_rows, r->edges().kernel_ids, r->output_csr().row_offsets,
            r->out_coords().array(), r->implicit_gemm().out_in_map})
        all.insert(all.end(), a.data<int32_t>(), a.data<int32_t>() + a.size());
    runs.push_back(std::move(all));
  }
  cpu::set_thread_count(before);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(Relations, FromEdgesKeepsTheirOrderAndChecksThem) {
  const auto ids = [](std::vector<int32_t> v) {
    return mx::array(v.data(), {static_cast<int>(v.size())}, mx::int32);
  };
  const auto r = Relation::from_edges(ids({1, 0, 1}), ids({1, 0, 0}), ids({0, 1, 0}), 2, 2, 2);
  EXPECT_EQ(to_edges(r->edges()), (std::vector<Edge>{{1, 1, 0}, {0, 0, 1}, {1, 0, 0}}));
  check_views(*r);
  check_reversed(r);
  EXPECT_FALSE(r->has_out_coords());
  EXPECT_THROW(Relation::from_edges(ids({0}), ids({0, 1}), ids({0}), 2, 2, 1),
               std::invalid_argument);
  EXPECT_THROW(Relation::from_edges(ids({2}), ids({0}), ids({0}), 2, 2, 1), std::invalid_argument);
  EXPECT_THROW(Relation::from_edges(ids({0}), ids({-1}), ids({0}), 2, 2, 1), std::invalid_argument);
  EXPECT_THROW(Relation::from_edges(ids({0}), ids({0}), ids({1}), 2, 2, 1), std::invalid_argument);
  EXPECT_THROW(Relation::from_edges(ids({}), ids({}), ids({}), 0, 0, 0), std::invalid_argument);
  const auto twice = Relation::from_edges(ids({0, 1}), ids({0, 0}), ids({0, 0}), 2, 1, 1);
  EXPECT_THROW(twice->implicit_gemm(), std::invalid_argument);
}

TEST(Relations, TensorsShareRelationsThroughTheirManager) {
  const SparseTensor x(line({0, 1, 5}), mx::ones({3, 2}), {2, 2, 2});
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  const auto down = relation(RelationKind::forward, x, half);
  EXPECT_EQ(down, relation(RelationKind::forward, x, half));
  EXPECT_EQ(down->out_key()->stride, (Triple{4, 4, 4}));
  const auto fine = relation(RelationKind::transposed, x, half);
  EXPECT_EQ(fine->out_key()->stride, (Triple{1, 1, 1}));
  EXPECT_EQ(relation(RelationKind::submanifold, x, {})->out_key(), x.coord_key());
  EXPECT_NE(relation(RelationKind::forward, x, {})->out_key(), x.coord_key());

  const SparseTensor low(x.coord_manager(), *down->out_key(), mx::ones({2, 2}));
  const auto up = relation(RelationKind::target_transposed, low, half, x);
  EXPECT_EQ(up->out_key(), x.coord_key());
  EXPECT_EQ(up, relation(RelationKind::target_transposed, low, half, x.coord_key()));
  const auto raw = relation(RelationKind::target, x, half, line({0, 2}));
  EXPECT_EQ(raw->out_key()->stride, (Triple{4, 4, 4}));
  const SparseTensor other(line({0, 1}), mx::ones({2, 2}), {4, 4, 4});
  EXPECT_EQ(relation(RelationKind::target, x, half, other),
            relation(RelationKind::target, x, half, other));
  EXPECT_THROW(relation(RelationKind::target, x, half, x), std::invalid_argument);  // wrong stride
  EXPECT_THROW(relation(RelationKind::target, x, half, other.coord_key()),
               std::invalid_argument);  // foreign key
  EXPECT_THROW(relation(RelationKind::generative, x, {{3, 3, 3}, {3, 3, 3}, {0, 0, 0}, {1, 1, 1}}),
               std::invalid_argument);
}

Relation::Ptr related(CoordinateManager& manager, RelationKind kind, const CoordinateMapKey& key,
                      const KernelSpec& spec = {}) {
  return relation_in(manager, kind, key, std::nullopt, spec, "test");
}

TEST(Manager, EvictionKeepsKeysAndUsers) {
  const auto manager = CoordinateManager::create(1);
  const auto key = manager->insert_coords(line({3, 0, 1, 2}), {4, 4, 4});
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  for (const RelationKind kind : {RelationKind::forward, RelationKind::transposed}) {
    const auto first = related(*manager, kind, key, half);
    related(*manager, RelationKind::submanifold, key);
    related(*manager, RelationKind::forward, key);
    const auto again = related(*manager, kind, key, half);
    EXPECT_NE(first, again);
    EXPECT_EQ(first->out_key(), again->out_key());
    EXPECT_EQ(first->kind(), again->kind());
    EXPECT_TRUE(first->out_coords().same_as(again->out_coords()));
    EXPECT_EQ(to_edges(first->edges()), to_edges(again->edges()));
  }
  EXPECT_GE(manager->stats().evictions, 4);
  EXPECT_EQ(manager->stats().relations, 1);
  manager->clear();
  EXPECT_EQ(manager->stats().relations, 0);
  EXPECT_EQ(manager->stats().bytes, 0u);
  EXPECT_TRUE(manager->owns(key));
}

TEST(Manager, InverseMapFollowsStrides) {
  const auto manager = CoordinateManager::create();
  const auto fine = manager->insert_coords(line({-1, 0, 1, 9}), {1, 1, 1});
  const auto coarse = manager->insert_coords(line({0, -1}), {2, 2, 2});
  EXPECT_EQ(to_vector(inverse_map_in(*manager, coarse, fine)), (std::vector<int32_t>{1, 0, 0, -1}));
  EXPECT_EQ(to_vector(inverse_map_in(*manager, fine, fine)), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_THROW(inverse_map_in(*manager, fine, coarse), std::invalid_argument);
}

TEST(Manager, ManyThreadsGetOneObject) {
  const auto scene = support::random_set(5000, 30);
  const auto manager = CoordinateManager::create();
  const auto key = manager->insert_coords(mx::array(scene.data(), {5000, 4}, mx::int32), {1, 1, 1});
  std::vector<Relation::Ptr> seen(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t)
    threads.emplace_back([&, t] {
      seen[t] = related(*manager, RelationKind::submanifold, key);
      seen[t]->edges();
      seen[t]->reversed()->input_csr();
    });
  for (auto& t : threads) t.join();
  for (const auto& r : seen) EXPECT_EQ(r, seen[0]);
  EXPECT_EQ(manager->stats().misses, 1);
  EXPECT_EQ(manager->stats().hits, 7);
}

// While one thread builds, the manager answers others, and those that ask for the same wait for it.
TEST(Manager, BuildsOnceWithoutTheLock) {
  const auto manager = CoordinateManager::create();
  const auto key = manager->insert_coords(line({0, 1, 2}), {1, 1, 1});
  std::atomic<int> built = 0, asked = 0;
  std::vector<Relation::Ptr> seen(6);
  const RelationBuilder slow = [&](RelationKind kind, const CoordinateSet& in,
                                   const KernelSpec& spec,
                                   const std::optional<CoordinateSet>& target,
                                   std::string_view operation) {
    ++built;
    while (asked < static_cast<int>(seen.size())) std::this_thread::yield();
    manager->insert_coords(line({5, 6}), {1, 1, 1});  // with the mutex held this would never end
    EXPECT_EQ(manager->stats().relations, 0);
    return relate(kind, in, spec, target, operation);
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t)
    threads.emplace_back([&, t] {
      ++asked;
      seen[t] =
          manager->relation(RelationKind::forward, key, std::nullopt, KernelSpec(), "test", slow);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(built, 1);
  for (const auto& r : seen) EXPECT_EQ(r, seen[0]);
  EXPECT_EQ(manager->stats().relations, 1);
}

// An exception of the builder reaches everybody who waits, and nothing stays behind.
TEST(Manager, AnExceptionReachesAllThatWait) {
  const auto manager = CoordinateManager::create();
  const auto key = manager->insert_coords(line({0, 1, 2}), {1, 1, 1});
  std::atomic<int> asked = 0, thrown = 0, built = 0;
  const RelationBuilder bad = [&](auto&&...) -> Relation::Fresh {
    ++built;
    while (asked < 4) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw std::runtime_error("no memory");
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      ++asked;
      try {
        manager->relation(RelationKind::forward, key, std::nullopt, KernelSpec(), "test", bad);
      } catch (const std::runtime_error& error) {
        thrown += std::string(error.what()) == "no memory";
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(thrown, 4);
  EXPECT_GE(built, 1);
  EXPECT_EQ(manager->stats().relations, 0);
  EXPECT_EQ(related(*manager, RelationKind::forward, key)->edge_count(), 7);
}

// Threads insert, relate, read statistics and force evictions; `make tsan` runs it too.
TEST(Manager, ThreadsInsertRelateAndEvict) {
  const auto shared = support::random_set(600, 12);
  const auto manager = CoordinateManager::create(1 << 16);
  const auto key = manager->insert_coords(mx::array(shared.data(), {600, 4}, mx::int32), {1, 1, 1});
  const int64_t edges = related(*manager, RelationKind::submanifold, key)->edge_count();
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 6; ++round) {
        const int n = 100 + 10 * static_cast<int>(t) + round;
        const auto own = support::random_set(n, 8);
        const auto mine =
            manager->insert_coords(mx::array(own.data(), {n, 4}, mx::int32), {1, 1, 1});
        related(*manager, RelationKind::submanifold, mine)->output_csr();
        wrong[t] += related(*manager, RelationKind::submanifold, key)->edge_count() != edges;
        wrong[t] += manager->stats().relations < 0;
        if (round == 3) manager->set_budget(1 << 14);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
}

TEST(Relations, HugeKernelsAndFarTargets) {
  EXPECT_THROW(KernelSpec({1 << 20, 2, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::invalid_argument);
  EXPECT_THROW(KernelSpec({0, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::invalid_argument);
  const auto wide = relation(RelationKind::forward, line({0, 1000}),
                             {{2001, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(to_edges(wide->edges()),
            (std::vector<Edge>{{0, 0, 1000}, {1, 0, 2000}, {0, 1, 0}, {1, 1, 1000}}));
  const int32_t end = 2147483647;
  EXPECT_THROW(
      relation(RelationKind::transposed, line({end}), {{2, 1, 1}, {2, 1, 1}, {0, 0, 0}, {1, 1, 1}}),
      std::overflow_error);
  EXPECT_EQ(relation(RelationKind::forward, line({end, -end - 1}), {})->edge_count(), 2);
}

}  // namespace
}  // namespace lattice
