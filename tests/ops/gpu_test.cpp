// What a real GPU may do differently: products in TF32, kernels that fail or are wrong there.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstdlib>
#include <set>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/gpu_call.h"
#include "lattice/ops/backend.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/probe.h"
#include "lattice/routes/products.h"
#include "lattice/routes/table.h"
#include "lattice/selftest/selftest.h"

namespace lattice::routes {
namespace {

// A machine with Metal whose kernels do what `run` does; probes run when asked for.
struct Machine {
  explicit Machine(decltype(graph::StandIn::run) run, bool probing = false,
                   TensorOps tier = TensorOps::gpu) {
    graph::stand_in() = {.run = std::move(run), .tensor_ops = tier, .probing = probing};
    forget_probes();
  }
  ~Machine() {
    graph::stand_in() = {};
    forget_probes();
  }
  Machine(const Machine&) = delete;
};

using Launch = std::function<graph::Arrays(const graph::Arrays&)>;

graph::Arrays no_kernel(const graph::GpuCall& call, const graph::Arrays&, const Launch&) {
  throw std::runtime_error(call.name + ": program_source:7: error: a text of another language");
}

graph::Arrays zeros(const graph::GpuCall& call, const graph::Arrays&, const Launch&) {
  graph::Arrays outputs;
  for (const auto& spec : call.outputs) outputs.push_back(mx::zeros(spec.shape, spec.dtype));
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
    graph::stand_in().tf32_products = true;  // TF32 where float32 was said
    const std::set<std::string> wrong = wrong_rows();
    for (const char* operation :
         {"conv", "linear", "outer", "per_edge_apply", "distance", "attention"})
      EXPECT_TRUE(wrong.contains(operation)) << operation;
    EXPECT_FALSE(wrong.contains("pool"));
  }
  const Machine fast(no_kernel, false, TensorOps::neural_accelerator);
  EXPECT_EQ(mlx_products(), Products::tf32);
  EXPECT_EQ(wrong_rows(), std::set<std::string>{});
  graph::stand_in().tf32_products = true;
  EXPECT_EQ(wrong_rows(), std::set<std::string>{});
}

// What is decided for a product of 9 rows.
std::string told_of_linear(mx::Dtype dtype) {
  return decide(linear_rows(), ConvAsked{{Relation::identity(9), 16, 16, 1, dtype},
                                         mx::zeros({9, 16}, dtype),
                                         {mx::zeros({1, 16, 16}, dtype)}})
      .text();
}

TEST(Products, ExplainSaysTf32) {
  const Machine fast(no_kernel, false, TensorOps::neural_accelerator);
  EXPECT_NE(told_of_linear(mx::float32).find("TF32"), std::string::npos);
  EXPECT_EQ(told_of_linear(mx::float16).find("TF32"), std::string::npos);
  EXPECT_EQ(backend_info().products, "tf32");
  setenv("MLX_ENABLE_TF32", "0", 1);
  EXPECT_EQ(mlx_products(), Products::float32);
  EXPECT_EQ(told_of_linear(mx::float32).find("TF32"), std::string::npos);
  unsetenv("MLX_ENABLE_TF32");
}

// A case for every row of Metal, whatever call it serves.
TEST(Probes, EveryRowHasACase) {
  const Machine machine(no_kernel, false, TensorOps::neural_accelerator);
  std::set<std::string> rows, seen;
  for (const OracleCase& test : all_cases())
    for (const Route* route : test.routes()) {
      if (route->code != Code::metal) continue;
      const std::string row = route->operation + " " + route->name;
      rows.insert(row);
      if (!test.question->refusal_by_conditions(*route).fits()) continue;
      EXPECT_TRUE(test.question->has_probe_case(*route)) << row << ": " << test.label;
      seen.insert(row);
    }
  EXPECT_EQ(seen, rows);
}

Decision of_a_convolution() {
  for (const OracleCase& test : all_cases())
    if (test.operation() == "conv" && test.label.starts_with("submanifold 16"))
      return test.question->decide(mx::Device(mx::Device::cpu));
  throw std::logic_error("no such case");
}

TEST(Probes, ARowThatFailsIsRefused) {
  const Machine machine(no_kernel, true);
  const int64_t before = run_count("conv", "metal.sorted");
  const Decision decision = of_a_convolution();
  EXPECT_EQ(decision.chosen->name, "gpu.mlx");
  const std::string text = decision.text();
  EXPECT_NE(text.find("its probe failed on this machine"), std::string::npos) << text;
  EXPECT_NE(text.find("program_source:7: error"), std::string::npos) << text;
  EXPECT_EQ(run_count("conv", "metal.sorted"), before);
  bool told = false;
  for (const auto& [label, failure] : backend_info().probes)
    told |= label == "conv metal.sorted float32" && !failure.empty();
  EXPECT_TRUE(told);
}

TEST(Probes, ARowThatIsWrongIsRefused) {
  const Machine machine(zeros, true);
  const Decision decision = of_a_convolution();
  EXPECT_EQ(decision.chosen->name, "gpu.mlx");
  EXPECT_NE(decision.text().find("of the result is 0.0"), std::string::npos) << decision.text();
}

TEST(Probes, AForcedRowIsProbedToo) {
  const Machine machine(no_kernel, true);
  setenv("LATTICE_ROUTE", "conv=metal.rows", 1);
  EXPECT_THROW(of_a_convolution(), std::invalid_argument);
  unsetenv("LATTICE_ROUTE");
}

TEST(Probes, DoNotRunOnAHostUnlessAsked) {
  const Machine machine(no_kernel);
  EXPECT_EQ(of_a_convolution().chosen->name, "metal.sorted");
  EXPECT_TRUE(probes().empty());
}

}  // namespace
}  // namespace lattice::routes
