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

}  // namespace
}  // namespace lattice
