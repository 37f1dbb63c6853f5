// What a real GPU may do differently: products in TF32, kernels that fail or are wrong there.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstdlib>
#include <set>

#include "lattice/graph/gpu_call.h"
#include "lattice/ops/backend.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/probe.h"
#include "lattice/routes/products.h"
#include "lattice/selftest/selftest.h"

namespace lattice {
namespace {

// A machine with Metal whose kernels do what `host` does; probes run when asked for.
struct Machine {
  explicit Machine(graph::GpuHost host, bool probing = false, TensorOps tier = TensorOps::gpu) {
    graph::set_gpu_host(std::move(host));
    force_tensor_ops(tier);
    set_probing(probing);
  }
  ~Machine() {
    graph::set_gpu_host({});
    force_tensor_ops(std::nullopt);
    set_probing(std::nullopt);
    set_tf32_stand_in(false);
  }
  Machine(const Machine&) = delete;
};

std::vector<mx::array> no_kernel(const graph::GpuLaunch& launch, const std::vector<mx::array>&) {
  throw std::runtime_error(launch.name + ": program_source:7: error: a text of another language");
}

std::vector<mx::array> zeros(const graph::GpuLaunch& launch, const std::vector<mx::array>&) {
  std::vector<mx::array> outputs;
  for (const auto& spec : launch.outputs) outputs.push_back(mx::zeros(spec.shape, spec.dtype));
  return outputs;
}

const std::vector<OracleCase>& all_cases() {
  static const std::vector<OracleCase> cases = oracle_cases();
  return cases;
}

// Rows of gpu.mlx whose verdict is "wrong".
std::set<std::string> wrong_rows() {
  std::set<std::string> wrong;
  for (const SelftestRow& row : selftest("gpu", "gpu.mlx", 5))
    if (!row.ok()) {
      // Features of 16 bits are exact in TF32; the weights of attention are not.
      EXPECT_TRUE(row.operation.starts_with("attention") ||
                  row.label.find("float16") == std::string::npos)
          << row.operation << " " << row.label;
      wrong.insert(row.operation);
    }
  return wrong;
}

TEST(Products, TheToleranceIsThatOfTheProducts) {
  {
    const Machine old(no_kernel, false, TensorOps::gpu);
    EXPECT_EQ(mlx_products(), Products::float32);
    EXPECT_EQ(wrong_rows(), std::set<std::string>{});
    set_tf32_stand_in(true);  // TF32 where float32 was said
    const std::set<std::string> wrong = wrong_rows();
    for (const char* operation :
         {"conv", "linear", "outer", "per_edge_apply", "distance", "attention"})
      EXPECT_TRUE(wrong.contains(operation)) << operation;
    EXPECT_FALSE(wrong.contains("pool"));
  }
  const Machine fast(no_kernel, false, TensorOps::neural_accelerator);
  EXPECT_EQ(mlx_products(), Products::tf32);
  EXPECT_EQ(wrong_rows(), std::set<std::string>{});
  set_tf32_stand_in(true);
  EXPECT_EQ(wrong_rows(), std::set<std::string>{});
}

Call linear(mx::Dtype dtype) {
  Call call;
  call.operation = Operation::linear;
  call.relation = Relation::identity(9);
  call.c_in = call.c_out = 16;
  call.dtype = dtype;
  call.stream = mx::Device(mx::Device::cpu);
  return call;
}

TEST(Products, ExplainSaysTf32) {
  const Machine fast(no_kernel, false, TensorOps::neural_accelerator);
  EXPECT_NE(decide(linear(mx::float32)).text().find("TF32"), std::string::npos);
  EXPECT_EQ(decide(linear(mx::float16)).text().find("TF32"), std::string::npos);
  EXPECT_EQ(backend_info().products, Products::tf32);
  setenv("MLX_ENABLE_TF32", "0", 1);
  EXPECT_EQ(mlx_products(), Products::float32);
  EXPECT_EQ(decide(linear(mx::float32)).text().find("TF32"), std::string::npos);
  unsetenv("MLX_ENABLE_TF32");
}

// A case for every row of Metal, whatever call it serves.
TEST(Probes, EveryRowHasACase) {
  const Machine machine(no_kernel, false, TensorOps::neural_accelerator);
  std::set<std::string> rows, seen;
  for (const OracleCase& test : all_cases())
    for (const Route& route : routes()) {
      if (route.code != Code::metal) continue;
      const std::string row = std::string(name(route.operation)) + " " + route.name;
      rows.insert(row);
      Call call = test.call;
      call.stream = mx::Device(mx::Device::cpu);
      if (call.operation != route.operation || !route.check(call).fits()) continue;
      EXPECT_TRUE(probe_case(route, call).has_value()) << row << ": " << test.label;
      seen.insert(row);
    }
  EXPECT_EQ(seen, rows);
}

Call convolution() {
  for (const OracleCase& test : all_cases())
    if (test.call.operation == Operation::conv && test.label.starts_with("submanifold 16")) {
      Call call = test.call;
      call.stream = mx::Device(mx::Device::cpu);
      return call;
    }
  throw std::logic_error("no such case");
}

TEST(Probes, ARowThatFailsIsRefused) {
  const Machine machine(no_kernel, true);
  const int64_t before = run_count("conv", "metal.sorted");
  const Decision decision = decide(convolution());
  EXPECT_EQ(decision.chosen->name, "gpu.mlx");
  const std::string text = decision.text();
  EXPECT_NE(text.find("its probe failed on this machine"), std::string::npos) << text;
  EXPECT_NE(text.find("program_source:7: error"), std::string::npos) << text;
  EXPECT_EQ(run_count("conv", "metal.sorted"), before);
  bool told = false;
  for (const Probe& probe : backend_info().probes)
    told |= probe.label == "conv metal.sorted float32" && !probe.failure.empty();
  EXPECT_TRUE(told);
}

TEST(Probes, ARowThatIsWrongIsRefused) {
  const Machine machine(zeros, true);
  const Decision decision = decide(convolution());
  EXPECT_EQ(decision.chosen->name, "gpu.mlx");
  EXPECT_NE(decision.text().find("of the result is 0.0"), std::string::npos) << decision.text();
}

TEST(Probes, AForcedRowIsProbedToo) {
  const Machine machine(no_kernel, true);
  setenv("LATTICE_ROUTE", "conv=metal.rows", 1);
  EXPECT_THROW(decide(convolution()), std::invalid_argument);
  unsetenv("LATTICE_ROUTE");
}

TEST(Probes, DoNotRunOnAHostUnlessAsked) {
  const Machine machine(no_kernel);
  EXPECT_EQ(decide(convolution()).chosen->name, "metal.sorted");
  EXPECT_TRUE(probes().empty());
}

}  // namespace
}  // namespace lattice
