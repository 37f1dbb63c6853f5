// Every row of the route table against the float64 oracle, and the rules of choosing a row.
#include "lattice/routes/decide.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <map>
#include <set>

#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/algebra.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/neighbors.h"
#include "lattice/ops/points.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/table.h"
#include "lattice/selftest/selftest.h"
#include "tests/ops/forced_route.h"

namespace lattice::routes {
namespace {

// They are made once: their oracles take a second.
const std::vector<OracleCase>& cases() {
  static const std::vector<OracleCase> made = oracle_cases();
  return made;
}

// Rows for instructions that this machine does not have.
std::set<const Route*> rows_of_other_machines() {
  std::set<const Route*> found;
  for (const OracleCase& test : cases())
    for (const Route* route : test.routes())
      if (route->device == mx::Device::cpu &&
          test.question->refusal_by_conditions(*route).step == Step::capability)
        found.insert(route);
  return found;
}

TEST(Routes, EveryRouteMatchesTheOracle) {
  std::map<std::string, int> cases;
  for (const SelftestRow& row : selftest()) {
    EXPECT_TRUE(row.ok()) << row.operation << " " << row.route << " " << row.label << ": error "
                          << row.error << " " << row.failure;
    ++cases[row.operation + " " + row.route];
  }
  const auto others = rows_of_other_machines();
  for (const Route* route : all())
    if (route->device == mx::Device::cpu && !others.contains(route)) {
      EXPECT_GT(cases[route->operation + " " + route->name], 10)
          << route->operation << " " << route->name << " has no cases";
    }
}

bool is_gpu_row_without_a_text_of_ours(const Route& route) {
  return route.device == mx::Device::gpu && (route.code == Code::mlx || route.code == Code::host);
}

// Rows for a GPU without a kernel text of ours are MLX operations, or the CPU's code in shared
// memory. The CPU evaluates the same graph.
TEST(Routes, GpuRowsWithoutATextOfOursMatchTheOracleOnTheCpu) {
  std::map<const Route*, int> ran;
  for (const OracleCase& test : cases())
    for (const Route* route : test.routes()) {
      if (!is_gpu_row_without_a_text_of_ours(*route) ||
          !test.question->refusal_by_conditions(*route).fits())
        continue;
      // MLX's attention on the CPU rounds 16-bit logits; its kernels for a GPU do not.
      if (route->name == "gpu.sdpa" && test.dtype != mx::float32) continue;
      const int64_t before = route->runs.n;
      const graph::Arrays results = test.question->run(*route, mx::Device(mx::Device::cpu));
      EXPECT_LE(oracle_error(test, results), 1) << route->operation << " " << test.label;
      EXPECT_EQ(route->runs.n, before + 1) << route->operation << " " << route->name;
      ++ran[route];
    }
  for (const Route* route : all()) {
    if (!is_gpu_row_without_a_text_of_ours(*route)) continue;
    EXPECT_GT(ran[route], 0) << route->operation << " " << route->name;
  }
}

TEST(Routes, SomeRowOfEveryOperationAlwaysFits) {
  for (const AnyTable* table : tables())
    for (const auto device : {mx::Device::cpu, mx::Device::gpu})
      EXPECT_TRUE(std::ranges::any_of(table->routes,
                                      [&](const Route* route) {
                                        return route->device == device &&
                                               std::ranges::all_of(
                                                   cases(), [&](const OracleCase& test) {
                                                     return &test.question->table() != table ||
                                                            test.question->refusal(*route).fits();
                                                   });
                                      }))
          << table->operation << " on device " << static_cast<int>(device);
}

// An operation with one row per device decides nothing: it needs no table.
TEST(Routes, EveryTableIsAChoice) {
  for (const AnyTable* table : tables()) {
    std::map<int, int> rows;
    for (const Route* route : table->routes) ++rows[static_cast<int>(route->device)];
    EXPECT_TRUE(std::ranges::any_of(rows, [](const auto& n) { return n.second > 1; }))
        << table->operation;
  }
}

TEST(Routes, NamesAreUnique) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Route* route : all()) {
    EXPECT_TRUE(seen.emplace(route->operation, route->name).second)
        << route->operation << " " << route->name;
    EXPECT_FALSE(route->predicate.empty());
  }
}

OracleCase small_conv() {
  for (const OracleCase& test : cases())
    if (test.operation() == "conv" && test.label.starts_with("submanifold 5")) return test;
  throw std::logic_error("no such case");
}

graph::Arrays run_conv(const OracleCase& test) {
  const ConvAsked& asked = *test.asked(conv_rows());
  return {conv(asked.x, asked.weight.w, asked.relation, asked.bias, 1, mx::Device::cpu)};
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
  const mx::Device cpu(mx::Device::cpu);
  std::map<const Route*, int> ran;
  for (const OracleCase& test : cases())
    for (const Route* route : test.routes()) {
      if (route->device != mx::Device::cpu || !test.question->refusal(*route).fits() ||
          ran[route] == 2)
        continue;
      const ForcedRoute force((route->operation + "=" + route->name).c_str());
      const int64_t before = route->runs.n;
      EXPECT_EQ(test.question->decide(cpu).chosen, route);
      graph::Arrays results = test.question->run(cpu);
      mx::eval(results);
      EXPECT_EQ(route->runs.n, before + 1) << route->operation << " " << route->name;
      ++ran[route];
    }
  const auto others = rows_of_other_machines();
  for (const Route* route : all()) {
    if (route->device != mx::Device::cpu || others.contains(route)) continue;
    EXPECT_EQ(ran[route], 2) << route->operation << " " << route->name;
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
  const graph::Arrays y = run_conv(test);
  ASSERT_EQ(log.decisions().size(), 1u);
  const std::string text = log.decisions()[0].text();
  for (const char* word :
       {"cpu.tiles", "device", "family", "relation", "storage", "shape and dtype", "edges", "FLOP"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " is missing in\n" << text;
  EXPECT_EQ(run_count("conv", "cpu.tiles"), before);
}

TEST(Routes, SameBitsForAnyNumberOfThreads) {
  const int threads = cpu::thread_count();
  for (const OracleCase& test : cases()) {
    std::vector<std::vector<float>> results;
    for (const int n : {1, 2, 3}) {
      cpu::set_thread_count(n);
      std::vector<float>& values = results.emplace_back();
      for (const mx::array& result : test.question->run(mx::Device(mx::Device::cpu))) {
        mx::array y = mx::astype(result, mx::float32, mx::Device::cpu);
        y.eval();
        values.insert(values.end(), y.data<float>(), y.data<float>() + y.size());
      }
    }
    EXPECT_EQ(results[0], results[1]) << test.label;
    EXPECT_EQ(results[0], results[2]) << test.label;
  }
  for (const PlainCase& test : plain_cases()) {
    std::vector<mx::array> results;
    for (const int n : {1, 2, 3}) {
      cpu::set_thread_count(n);
      results.push_back(test.run(mx::Device(mx::Device::cpu)));
      results.back().eval();
    }
    for (const int i : {1, 2})
      EXPECT_TRUE(mx::array_equal(results[0], results[static_cast<size_t>(i)], true).item<bool>())
          << test.operation << " " << test.label;
  }
  cpu::set_thread_count(threads);
}

// Operations without routes: MLX operations on a GPU, which the CPU evaluates here. The gradient of
// a distance also asks for the distance. AdamW has a kernel of ours; the emulation runs it.
TEST(Routes, PlainOperationsOfAGpuMatchTheOracle) {
  const ForcedRoute force("distance=gpu.mlx");
  graph::stand_in().run = [](const graph::GpuCall& call, const auto&,
                             const auto&) -> std::vector<mx::array> {
    throw std::logic_error(call.name + " must not run");
  };
  std::map<std::string, int> cases;
  for (const SelftestRow& row : selftest("gpu", "gpu"))
    if (row.route == "gpu" && row.operation != "adamw") {
      EXPECT_TRUE(row.ok()) << row.operation << " " << row.label << ": error " << row.error << " "
                            << row.failure;
      ++cases[row.operation];
    }
  graph::stand_in() = {};
  EXPECT_EQ(cases.size(), 10u);
}

// Whatever asks for geometry asks the tables: what users call is what the self test runs.
TEST(Routes, GeometryIsDecidedEverywhere) {
  const mx::Device cpu(mx::Device::cpu);
  const mx::array coords = mx::array({0, 1, 1, 1, 0, 1, 1, 1, 0, 2, 3, 4}, {3, 4}, mx::int32);
  const mx::array points = mx::array({0.5f, 0.5f, 0.5f, 1.5f, 0.5f, 0.5f}, {2, 3}, mx::float32);
  const auto decided = [](const auto& function) {
    DecisionLog log;
    function();
    std::set<std::string> seen;
    for (const Decision& d : log.decisions())
      seen.insert(d.table->operation + " " + d.chosen->name);
    return seen;
  };
  using Seen = std::set<std::string>;
  EXPECT_EQ(decided([&] { sparse_quantize(points, {}, std::nullopt, cpu); }),
            Seen{"unique cpu.sorted"});
  EXPECT_EQ(decided([&] {
              sparse_from_coordinates(coords, mx::ones({3, 2}), {1, 1, 1}, std::nullopt,
                                      Duplicates::first, cpu);
            }),
            (Seen{"gather cpu.rows", "unique cpu.sorted"}));
  EXPECT_EQ(decided([&] { intersection_coords(coords, coords, cpu); }),
            (Seen{"lookup cpu.sorted", "unique cpu.sorted"}));
  const auto manager = CoordinateManager::create();
  const auto key = manager->insert_coords(coords, {1, 1, 1});
  EXPECT_EQ(decided([&] { inverse_map_in(*manager, key, key, cpu); }), Seen{"lookup cpu.sorted"});
  EXPECT_EQ(decided([&] { build_knn_relation({points, {}, {}, {}}, 1, cpu); }),
            Seen{"neighbors cpu.tree"});
}

}  // namespace
}  // namespace lattice::routes
