// Every row of the route table against the float64 oracle, and the rules of choosing a row.
#include "lattice/routes/decide.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv_core.h"
#include "lattice/selftest/selftest.h"

namespace lattice {
namespace {

// Sets LATTICE_ROUTE for one scope.
struct ForcedRoute {
  explicit ForcedRoute(const char* text) { setenv("LATTICE_ROUTE", text, 1); }
  ~ForcedRoute() { unsetenv("LATTICE_ROUTE"); }
};

TEST(Routes, EveryRouteMatchesTheOracle) {
  std::map<std::string, int> cases;
  for (const SelftestRow& row : selftest()) {
    EXPECT_TRUE(row.ok()) << row.operation << " " << row.route << " " << row.label << ": error "
                          << row.error << " " << row.failure;
    ++cases[row.operation + " " + row.route];
  }
  for (const Route& route : routes()) {
    if (route.device == mx::Device::cpu) {
      EXPECT_GT(cases[std::string(name(route.operation)) + " " + route.name], 10)
          << name(route.operation) << " " << route.name << " has no cases";
    }
  }
}

// Rows for a GPU without a kernel text of ours are MLX operations, or the CPU's code in shared
// memory. The CPU evaluates the same graph.
TEST(Routes, GpuRowsWithoutATextOfOursMatchTheOracleOnTheCpu) {
  std::map<const Route*, int> ran;
  for (OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      if (route.operation != test.call.operation || route.device != mx::Device::gpu ||
          (route.code != Code::mlx && route.code != Code::host) || !route.check(test.call).fits())
        continue;
      // MLX's attention on the CPU rounds 16-bit logits; its kernels for a GPU do not.
      if (route.name == "gpu.sdpa" && test.call.dtype != mx::float32) continue;
      test.call.stream = mx::Device(mx::Device::cpu);
      const int64_t before = route.runs.n;
      mx::array result = route.launch(test.call, route)[0];
      EXPECT_LE(oracle_error(test, result), 1) << name(route.operation) << " " << test.label;
      EXPECT_EQ(route.runs.n, before + 1) << name(route.operation) << " " << route.name;
      ++ran[&route];
    }
  for (const Route& route : routes()) {
    if (route.device != mx::Device::gpu || (route.code != Code::mlx && route.code != Code::host))
      continue;
    EXPECT_GT(ran[&route], 0) << name(route.operation) << " " << route.name;
  }
}

TEST(Routes, SomeRowOfEveryOperationAlwaysFits) {
  const std::vector<OracleCase> cases = oracle_cases();
  std::map<std::pair<Operation, int>, bool> found;
  for (const Route& route : routes()) {
    bool& one = found[{route.operation, static_cast<int>(route.device)}];
    one = one || std::ranges::all_of(cases, [&](const OracleCase& test) {
            return test.call.operation != route.operation || route.refusal(test.call).fits();
          });
  }
  for (const auto& [key, one] : found)
    EXPECT_TRUE(one) << name(key.first) << " on device " << key.second;
}

TEST(Routes, NamesAreUnique) {
  std::set<std::pair<Operation, std::string>> seen;
  for (const Route& route : routes()) {
    EXPECT_TRUE(seen.emplace(route.operation, route.name).second)
        << name(route.operation) << " " << route.name;
    EXPECT_FALSE(route.predicate.empty());
  }
}

OracleCase small_conv() {
  for (OracleCase& test : oracle_cases())
    if (test.call.operation == Operation::conv && test.label.starts_with("submanifold 5"))
      return test;
  throw std::logic_error("no such case");
}

mx::array run_conv(const OracleCase& test) {
  const auto& in = test.call.inputs;
  return conv(in[0], in[1], test.call.relation, in[2], 1, mx::Device::cpu);
}

TEST(Routes, AForcedRouteRuns) {
  const OracleCase test = small_conv();
  const ForcedRoute force("outer=cpu.tiles,conv=cpu.reference");
  const int64_t before = run_count("conv", "cpu.reference");
  EXPECT_LE(oracle_error(test, run_conv(test)), 1);
  EXPECT_EQ(run_count("conv", "cpu.reference"), before + 1);
}

// LATTICE_ROUTE takes every row of the CPU to its kernel.
TEST(Routes, EveryRowCanBeForced) {
  std::map<const Route*, int> ran;
  for (const OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      Call call = test.call;
      call.stream = mx::Device(mx::Device::cpu);
      if (route.operation != call.operation || route.device != mx::Device::cpu ||
          !route.refusal(call).fits() || ran[&route] == 2)
        continue;
      const ForcedRoute force((std::string(name(route.operation)) + "=" + route.name).c_str());
      const int64_t before = route.runs.n;
      EXPECT_EQ(decide(call).chosen, &route);
      mx::array result = run(call);
      result.eval();
      EXPECT_EQ(route.runs.n, before + 1) << name(route.operation) << " " << route.name;
      ++ran[&route];
    }
  for (const Route& route : routes()) {
    if (route.device != mx::Device::cpu) continue;
    EXPECT_EQ(ran[&route], 2) << name(route.operation) << " " << route.name;
  }
}

TEST(Routes, TheDefaultIsTheFirstRow) {
  const OracleCase test = small_conv();
  const int64_t before = run_count("conv", "cpu.tiles"), slow = run_count("conv", "cpu.reference");
  EXPECT_LE(oracle_error(test, run_conv(test)), 1);
  EXPECT_EQ(run_count("conv", "cpu.tiles"), before + 1);
  EXPECT_EQ(run_count("conv", "cpu.reference"), slow);
}

TEST(Routes, BadForcedRoutesAreErrors) {
  const OracleCase test = small_conv();
  for (const char* text : {"conv=nothing", "conv", "conv=gpu.mlx"}) {
    const ForcedRoute force(text);
    EXPECT_THROW(run_conv(test), std::invalid_argument) << text;
  }
}

TEST(Routes, ALogSeesDecisionsAndNothingRuns) {
  const OracleCase test = small_conv();
  const int64_t before = run_count("conv", "cpu.tiles");
  DecisionLog log;
  const mx::array y = run_conv(test);
  ASSERT_EQ(log.decisions().size(), 1u);
  const std::string text = log.decisions()[0].text();
  for (const char* word :
       {"cpu.tiles", "device", "family", "relation", "storage", "shape and dtype", "edges", "FLOP"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " is missing in\n" << text;
  EXPECT_EQ(run_count("conv", "cpu.tiles"), before);
}

TEST(Routes, SameBitsForAnyNumberOfThreads) {
  const int threads = cpu::thread_count();
  for (const OracleCase& test : oracle_cases()) {
    std::vector<std::vector<float>> results;
    for (const int n : {1, 2, 3}) {
      cpu::set_thread_count(n);
      Call call = test.call;
      call.stream = mx::Device(mx::Device::cpu);
      mx::array y = mx::astype(run(call), mx::float32, mx::Device::cpu);
      y.eval();
      results.emplace_back(y.data<float>(), y.data<float>() + y.size());
    }
    EXPECT_EQ(results[0], results[1]) << test.label;
    EXPECT_EQ(results[0], results[2]) << test.label;
  }
  cpu::set_thread_count(threads);
}

// Rows for Metal, as they are chosen where there is one. Nothing is launched.
struct AsOnMetal {
  AsOnMetal() {
    graph::set_gpu_host([](const graph::GpuLaunch& launch,
                           const std::vector<mx::array>&) -> std::vector<mx::array> {
      throw std::logic_error(launch.name + " must not run");
    });
  }
  ~AsOnMetal() { graph::set_gpu_host({}); }
};

Call conv_call(Operation operation, Relation::Ptr relation, int64_t c_in, int64_t c_out,
               int64_t groups = 1, Packing packing = {}) {
  Call call;
  call.operation = operation;
  call.relation = std::move(relation);
  call.c_in = c_in, call.c_out = c_out, call.groups = groups;
  call.payload = Weights{packing};
  call.stream = mx::Device(mx::Device::cpu);
  return call;
}

// Why the row refuses; fails the test when there is no such row.
Rejection refusal(const char* route, const Call& call) {
  for (const Route& row : routes())
    if (row.operation == call.operation && row.name == route) return row.refusal(call);
  ADD_FAILURE() << "no route " << name(call.operation) << " " << route;
  return {};
}

Relation::Ptr relation_of(RelationKind kind) {
  Random random{7};
  return make_relation(random, kind, 40);
}

constexpr RelationKind kSortable[] = {RelationKind::forward, RelationKind::target,
                                      RelationKind::submanifold};
constexpr RelationKind kUnsorted[] = {RelationKind::transposed, RelationKind::generative,
                                      RelationKind::target_transposed};

TEST(MetalRoutes, TakenInOrder) {
  const AsOnMetal metal;
  const auto chosen = [](const Call& call) { return decide(call).chosen->name; };
  for (const RelationKind kind : kSortable) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16)), "metal.sorted") << kind_name(kind);
    const bool mirror = kind == RelationKind::submanifold;
    EXPECT_EQ(chosen(conv_call(Operation::conv, r->reversed(), 16, 16)),
              mirror ? "metal.mirrored" : "metal.tiles")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16, 1, {4, 32, false})),
              "metal.packed_sorted")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r->reversed(), 16, 16, 1, {4, 32, true})),
              mirror ? "metal.packed_mirrored" : "metal.packed_tiles")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 3, 16)), "metal.rows") << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 3, 16, 1, {4, 32, false})), "metal.rows")
        << kind_name(kind);
  }
  for (const RelationKind kind : kUnsorted)
    for (const Relation::Ptr& r : {relation_of(kind), relation_of(kind)->reversed()}) {
      const bool one = kind == RelationKind::generative && !r->is_reversed();
      EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16)), one ? "metal.lists" : "metal.tiles")
          << r->text();
      EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16, 1, {8, 64, true})),
                one ? "metal.packed_lists" : "metal.packed_tiles")
          << r->text();
    }
  EXPECT_EQ(chosen(conv_call(Operation::conv, relation_of(RelationKind::custom), 16, 16)),
            "metal.buckets");
  EXPECT_EQ(chosen(conv_call(Operation::conv, relation_of(RelationKind::custom), 16, 16, 1,
                             {4, 32, false})),
            "metal.rows");
  EXPECT_EQ(chosen(conv_call(Operation::outer, relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  EXPECT_EQ(chosen(conv_call(Operation::outer, relation_of(RelationKind::custom), 16, 7)),
            "metal.rows");
  EXPECT_EQ(chosen(conv_call(Operation::linear, Relation::identity(5), 16, 16)), "gpu.mlx");
  EXPECT_EQ(chosen(conv_call(Operation::linear, Relation::identity(5), 3, 1, 1, {4, 32, false})),
            "metal.packed");
  // 240 edges, 4 matrices.
  EXPECT_EQ(chosen(conv_call(Operation::per_edge_apply, relation_of(RelationKind::custom), 16, 16)),
            "metal.buckets");
  EXPECT_EQ(chosen(conv_call(Operation::per_edge_outer, relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  for (const Operation operation : {Operation::per_edge_apply, Operation::per_edge_outer})
    EXPECT_EQ(chosen(conv_call(operation, relation_of(RelationKind::custom), 16, 7)), "metal.rows");
}

TEST(MetalRoutes, OnlyThreeKindsAreSorted) {
  const AsOnMetal metal;
  for (const RelationKind kind : kUnsorted) {
    const Rejection why =
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind), 16, 16));
    EXPECT_EQ(why.step, Rejection::Step::relation);
    EXPECT_NE(why.text.find(kind_name(kind)), std::string::npos) << why.text;
    EXPECT_FALSE(
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind)->reversed(), 16, 16))
            .fits());
  }
  for (const RelationKind kind : kSortable) {
    const Rejection why =
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind)->reversed(), 16, 16));
    EXPECT_EQ(why.step, Rejection::Step::relation);
    EXPECT_NE(why.text.find("reversed"), std::string::npos) << why.text;
  }
}

TEST(MetalRoutes, OnlyAReversedSubmanifoldIsMirrored) {
  const AsOnMetal metal;
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::target, RelationKind::submanifold,
        RelationKind::transposed, RelationKind::generative}) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(refusal("metal.mirrored", conv_call(Operation::conv, r, 16, 16)).step,
              Rejection::Step::relation);
    const bool fits =
        refusal("metal.mirrored", conv_call(Operation::conv, r->reversed(), 16, 16)).fits();
    EXPECT_EQ(fits, kind == RelationKind::submanifold) << kind_name(kind);
  }
  const Relation::Ptr back = relation_of(RelationKind::submanifold)->reversed();
  EXPECT_EQ(refusal("metal.mirrored", conv_call(Operation::conv, back, 16, 7)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.mirrored", conv_call(Operation::conv, back, 16, 16, 1, {4, 32, false})).step,
      Rejection::Step::storage);
}

TEST(MetalRoutes, MoreThan32OffsetsAreNotSorted) {
  const AsOnMetal metal;
  Random random{7};
  const auto with_size = [&](const Triple& size) {
    return relate(RelationKind::submanifold, random_coords(random, 40, 3),
                  KernelSpec(size, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::nullopt, "test");
  };
  EXPECT_TRUE(
      refusal("metal.sorted", conv_call(Operation::conv, with_size({3, 3, 3}), 8, 8)).fits());
  const Call many = conv_call(Operation::conv, with_size({3, 3, 5}), 8, 8);
  EXPECT_EQ(refusal("metal.sorted", many).step, Rejection::Step::relation);
  EXPECT_NE(refusal("metal.sorted", many).text.find("45 offsets"), std::string::npos);
  EXPECT_EQ(decide(many).chosen->name, "metal.tiles");
  EXPECT_EQ(decide(conv_call(Operation::conv, many.relation->reversed(), 8, 8)).chosen->name,
            "metal.tiles");
}

TEST(MetalRoutes, TilesNeedEightChannelsOfAGroup) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold);
  for (const char* route : {"metal.sorted", "metal.tiles"}) {
    EXPECT_TRUE(refusal(route, conv_call(Operation::conv, r, 16, 24, 2)).fits());
    for (const Call& call :
         {conv_call(Operation::conv, r, 7, 8), conv_call(Operation::conv, r, 8, 7),
          conv_call(Operation::conv, r, 16, 16, 4)})
      EXPECT_EQ(refusal(route, call).step, Rejection::Step::shape) << route;
  }
  EXPECT_TRUE(refusal("metal.outer", conv_call(Operation::outer, r, 16, 24, 2)).fits());
  EXPECT_EQ(refusal("metal.outer", conv_call(Operation::outer, r, 24, 24, 24)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 4, 1, {4, 32, false})).step,
      Rejection::Step::shape);
}

TEST(MetalRoutes, ListsNeedOneEdgeForEveryRow) {
  const AsOnMetal metal;
  const auto made = [](std::vector<int32_t> out, int64_t n_out) {
    const int n = static_cast<int>(out.size());
    return Relation::from_edges(mx::zeros({n}, mx::int32), mx::array(out.begin(), {n}, mx::int32),
                                mx::zeros({n}, mx::int32), 1, n_out, 1);
  };
  EXPECT_TRUE(refusal("metal.lists", conv_call(Operation::conv, made({1, 0, 2}, 3), 8, 8)).fits());
  // Fewer edges than rows, more, and as many with a row that has none.
  for (const Relation::Ptr& r : {made({1, 0}, 3), made({1, 0, 2, 2}, 3), made({1, 2, 2}, 3)})
    EXPECT_EQ(refusal("metal.lists", conv_call(Operation::conv, r, 8, 8)).step,
              Rejection::Step::relation);
  EXPECT_EQ(refusal("metal.lists", conv_call(Operation::conv, made({0}, 1), 8, 7)).step,
            Rejection::Step::shape);
}

TEST(MetalRoutes, TilesOfListsNeedEdges) {
  const AsOnMetal metal;
  // One edge for each of 4,000 rows, 63 tiles: 63 lists for an offset.
  const auto made = [](int64_t n_k) {
    return Relation::from_edges(mx::zeros({4000}, mx::int32), mx::arange(4000),
                                mx::zeros({4000}, mx::int32), 1, 4000, n_k);
  };
  EXPECT_TRUE(refusal("metal.buckets", conv_call(Operation::conv, made(318), 8, 8)).fits());
  EXPECT_EQ(refusal("metal.buckets", conv_call(Operation::conv, made(320), 8, 8)).step,
            Rejection::Step::relation);
  EXPECT_EQ(refusal("metal.buckets", conv_call(Operation::conv, made(1), 8, 7)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.buckets", conv_call(Operation::conv, made(1), 8, 8, 1, {4, 32, false})).step,
      Rejection::Step::storage);
}

TEST(MetalRoutes, StorageDecides) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold), same = Relation::identity(9);
  const Packing packing{4, 32, false};
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_call(Operation::conv, r, 16, 16, 1, packing)).step,
              Rejection::Step::storage);
  EXPECT_EQ(refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 16)).step,
            Rejection::Step::storage);
  EXPECT_EQ(refusal("metal.packed", conv_call(Operation::linear, same, 16, 16)).step,
            Rejection::Step::storage);
}

TEST(MetalRoutes, AMapHoldsOneEdgeForAnOffset) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::custom);
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_call(Operation::conv, r, 16, 16)).step,
              Rejection::Step::relation);
  EXPECT_EQ(
      refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 16, 1, {4, 32, false})).step,
      Rejection::Step::relation);
}

// 2^30 rows are 2^24 tiles of 128 threads: one thread more than MLX counts.
TEST(MetalRoutes, OneLaunchHasFewerThan2To31Threads) {
  const AsOnMetal metal;
  const Packing packing{4, 32, false};
  const auto linear = [&](int64_t rows) {
    return conv_call(Operation::linear, Relation::identity(rows), 16, 16, 1, packing);
  };
  EXPECT_EQ(decide(linear(1 << 29)).chosen->name, "metal.packed");
  EXPECT_EQ(refusal("metal.packed", linear(1 << 30)).step, Rejection::Step::shape);
  EXPECT_EQ(decide(linear(1 << 30)).chosen->name, "gpu.mlx");
  EXPECT_EQ(decide(linear(2'000'000'000)).chosen->name, "gpu.mlx");
  const Call conv = conv_call(Operation::conv, Relation::identity(1 << 30), 16, 16);
  EXPECT_EQ(refusal("metal.buckets", conv).step, Rejection::Step::shape);
  EXPECT_TRUE(refusal("metal.rows", conv).fits());
}

TEST(MetalRoutes, AreNotTakenWithoutMetal) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine has Metal";
  int metal_rows = 0;
  for (const OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      if (route.operation != test.call.operation || !route.name.starts_with("metal.")) continue;
      EXPECT_FALSE(route.refusal(test.call).fits())
          << name(route.operation) << " " << route.name << " " << test.label;
      ++metal_rows;
    }
  EXPECT_GT(metal_rows, 100);
  const Call call = conv_call(Operation::conv, relation_of(RelationKind::submanifold), 3, 3);
  EXPECT_EQ(refusal("metal.rows", call).step, Rejection::Step::capability);
}

}  // namespace
}  // namespace lattice
