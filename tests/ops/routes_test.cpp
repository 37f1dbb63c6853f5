// Every row of the route table against the float64 oracle, and the rules of choosing a row.
#include "lattice/ops/routes.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstdlib>
#include <map>
#include <set>

#include "lattice/kernels/cpu/threads.h"
#include "lattice/ops/bilinear.h"
#include "lattice/ops/oracle_cases.h"

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
    EXPECT_TRUE(row.ok()) << row.operation << " " << row.route << " " << row.label << ": error " << row.error << " "
                          << row.failure;
    ++cases[row.operation + " " + row.route];
  }
  for (const Route& route : routes()) {
    if (route.device == mx::Device::cpu) {
      EXPECT_GT(cases[route.operation + " " + route.name], 10)
          << route.operation << " " << route.name << " has no cases";
    }
  }
}

// The rows for a GPU are plain MLX operations; the CPU evaluates the same graph.
TEST(Routes, GpuRowsOfMlxOperationsMatchTheOracleOnTheCpu) {
  int checked = 0;
  for (OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      if (route.operation != test.call.operation || route.name != "gpu.mlx" || route.operation == "linear") continue;
      test.call.stream = mx::Device(mx::Device::cpu);
      EXPECT_LE(oracle_error(test, route.launch(test.call)), 1) << route.operation << " " << test.label;
      ++checked;
    }
  EXPECT_GT(checked, 50);
}

TEST(Routes, LastRowOfEveryOperationAlwaysFits) {
  std::map<std::pair<std::string, int>, const Route*> last;
  for (const Route& route : routes()) last[{route.operation, static_cast<int>(route.device)}] = &route;
  for (const OracleCase& test : oracle_cases())
    for (const auto& [key, route] : last)
      if (key.first == test.call.operation) {
        EXPECT_TRUE(route->check(test.call).fits()) << route->name << " " << test.label;
      }
}

TEST(Routes, NamesAreUnique) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Route& route : routes()) {
    EXPECT_TRUE(seen.emplace(route.operation, route.name).second) << route.operation << " " << route.name;
    EXPECT_FALSE(route.predicate.empty());
  }
}

OracleCase small_conv() {
  for (OracleCase& test : oracle_cases())
    if (test.call.operation == "conv" && test.label.starts_with("submanifold 5")) return test;
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
  for (const char* word : {"cpu.tiles", "device", "family", "relation", "storage", "shape and dtype", "edges", "FLOP"})
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

}  // namespace
}  // namespace lattice
