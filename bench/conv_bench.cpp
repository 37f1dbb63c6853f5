// Convolution and its two gradients, against dense matrix multiplication and other ways to compute
// the same, in one run.
//
//   conv_bench                                    the table
//   conv_bench --benchmark_filter='lidar.*f32 64' some of its lines
//   conv_bench --benchmark_format=json            Google Benchmark's own report; also console, csv
//
// FLOP = 2 * edges * C_in * C_out. "core" is FLOP over the CPU seconds of all threads, which a busy
// machine disturbs little; "wall" is FLOP over elapsed time. The last three columns divide "core"
// by the rate of a large square sgemm of the same threads, of gather + sgemm + scatter, of
// plain MLX. Values are checked against the reference kernel before timing.
#include <benchmark/benchmark.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/core/relation.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv.h"
#include "lattice/routes/conv.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;
using namespace lattice::routes;

struct Scene {
  std::string name;
  Relation::Ptr submanifold, strided, transposed;
};

Scene make_scene(const std::string& name) {
  const support::Coords rows = support::scene(name).coords;
  const CoordinateSet coords(
      mx::array(rows.data(), {static_cast<int>(rows.size() / 4), 4}, mx::int32), "conv_bench");
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  return {name, relate(RelationKind::submanifold, coords, KernelSpec(), std::nullopt, "conv_bench"),
          relate(RelationKind::forward, coords, half, std::nullopt, "conv_bench"),
          relate(RelationKind::transposed, coords, half, std::nullopt, "conv_bench")};
}

enum class Pass { forward, input_gradient, weight_gradient };
const char* name(Pass pass) {
  return pass == Pass::forward          ? "forward"
         : pass == Pass::input_gradient ? "input grad"
                                        : "weight grad";
}

// One operation with its data, evaluated inputs.
struct Problem {
  std::variant<ConvAsked, OuterAsked> asked;
  const ConvProblem& shape() const {
    return std::visit([](const auto& a) -> const ConvProblem& { return a; }, asked);
  }
  double flop() const { return shape().flop(); }
  mx::array ours() const {
    if (const auto* conv = std::get_if<ConvAsked>(&asked)) return run(conv_rows(), *conv);
    return run(outer_rows(), std::get<OuterAsked>(asked));
  }
  mx::array with_mlx() const {
    if (const auto* conv = std::get_if<ConvAsked>(&asked)) return conv_with_mlx(*conv);
    return outer_with_mlx(std::get<OuterAsked>(asked));
  }
};

mx::array values(int rows, int columns, mx::Dtype dtype, uint64_t seed) {
  mx::array a =
      mx::astype(mx::random::normal({rows, columns}, mx::float32, mx::random::key(seed)), dtype);
  a.eval();
  return a;
}

Problem make_problem(const Relation::Ptr& relation, Pass pass, int c_in, int c_out,
                     mx::Dtype dtype) {
  const bool backward = pass == Pass::input_gradient;
  const ConvProblem shape{backward ? relation->reversed() : relation, backward ? c_out : c_in,
                          backward ? c_in : c_out, 1, dtype};
  const mx::Device cpu(mx::Device::cpu);
  const mx::array x =
      values(static_cast<int>(shape.n_in()), static_cast<int>(shape.c_in), dtype, 1);
  if (pass == Pass::weight_gradient)
    return {OuterAsked{shape, x, values(static_cast<int>(shape.n_out()), c_out, dtype, 2), cpu}};
  const int n_k = static_cast<int>(shape.n_k());
  mx::array w = mx::reshape(values(n_k * c_in, c_out, dtype, 3), {n_k, c_in, c_out});
  if (backward) w = mx::transpose(w, {0, 2, 1});
  w.eval();
  ConvAsked asked{shape, x, {w}};
  asked.stream = cpu;
  return {asked};
}

using Launch = std::function<void(const Problem&)>;

void evaluate(mx::array a) { a.eval(); }
const Launch kOurs = [](const Problem& p) { evaluate(p.ours()); };
const Launch kMlx = [](const Problem& p) { evaluate(p.with_mlx()); };

// |difference| of ours and plain MLX operations, relative to the largest value.
void check(const std::string& title, const Problem& p) {
  const mx::array ours = mx::astype(p.ours(), mx::float32);
  const mx::array plain = mx::astype(p.with_mlx(), mx::float32);
  const float error = mx::max(mx::abs(mx::subtract(ours, plain))).item<float>() /
                      mx::max(mx::abs(plain)).item<float>();
  const float most = p.shape().dtype() == mx::float32 ? 1e-4f : 1e-2f;
  if (!(error <= most))
    throw std::runtime_error(title + ": relative error " + std::to_string(error));
}

void time(benchmark::State& state, double flop, const std::function<void()>& work) {
  double cpu = 1e30, wall = 1e30;
  for (auto _ : state) {
    const double begin = bench::cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    work();
    wall = std::min(
        wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    const double spent = bench::cpu_seconds() - begin;
    state.SetIterationTime(spent);
    cpu = std::min(cpu, spent);
  }
  state.counters["core"] = flop / cpu * 1e-9;
  state.counters["wall"] = flop / wall * 1e-9;
}

void add(const std::string& title, int threads,
         const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark((title + "/threads:" + std::to_string(threads)).c_str(),
                               [threads, body](benchmark::State& state) {
                                 cpu::set_thread_count(threads);
                                 body(state);
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.3);
}

void add_problem(const Scene& scene, const std::string& what, const Relation::Ptr& relation,
                 Pass pass, int c_in, int c_out, mx::Dtype dtype, bool baselines) {
  const std::string title = scene.name + "/" + what + " " + name(pass) + "/" +
                            graph::dtype_name(dtype) + " " + std::to_string(c_in) + "->" +
                            std::to_string(c_out);
  // Made when first needed, shared by the lines of this problem, freed by the last.
  auto problem = std::make_shared<std::unique_ptr<Problem>>();
  const auto get = [=]() -> const Problem& {
    if (!*problem)
      *problem = std::make_unique<Problem>(make_problem(relation, pass, c_in, c_out, dtype));
    return **problem;
  };
  if (baselines) {
#if defined(LATTICE_HAS_BLAS)
    if (pass != Pass::weight_gradient)
      add(title + "/gather sgemm scatter", 1, [=](benchmark::State& state) {
        const Problem& p = get();
        std::vector<float> y(static_cast<size_t>(p.shape().n_out() * p.shape().c_out));
        time(state, p.flop(),
             [&] { bench::gather_gemm_scatter(std::get<ConvAsked>(p.asked), y.data()); });
      });
#endif
    add(title + "/plain MLX", 1, [=](benchmark::State& state) {
      const Problem& p = get();
      check(title, p);
      time(state, p.flop(), [&] { kMlx(p); });
    });
  }
  for (const int threads : {1, 2})
    add(title + "/ours", threads, [=](benchmark::State& state) {
      const Problem& p = get();
      time(state, p.flop(), [&] { kOurs(p); });
      if (threads == 2) problem->reset();
    });
}

// One line per benchmark of ours, with its ratios to what ran before it.
class SpeedTable : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::printf("%-7s %-24s %-17s %7s %8s %8s %8s %10s %10s\n", "scene", "operation", "features",
                "threads", "core GF/s", "wall GF/s", "/ sgemm", "/ gather", "/ MLX");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string title = run.run_name.function_name;
      const std::string threads = title.substr(title.rfind(':') + 1);
      const std::string body = title.substr(0, title.rfind('/'));
      const std::string problem = body.substr(0, body.rfind('/')),
                        what = body.substr(body.rfind('/') + 1);
      const double core = run.counters.at("core").value, wall = run.counters.at("wall").value;
      seen_[problem + "/" + what + "/" + threads] = core;
      if (what == "sgemm") {
        std::printf("large square sgemm, %s threads: core %.1f GF/s, wall %.1f GF/s\n",
                    threads.c_str(), core, wall);
      } else if (what == "ours") {
        const size_t a = problem.find('/'), b = problem.rfind('/');
        std::printf("%-7s %-24s %-17s %7s %8.1f %8.1f %s %s %s\n", problem.substr(0, a).c_str(),
                    problem.substr(a + 1, b - a - 1).c_str(), problem.substr(b + 1).c_str(),
                    threads.c_str(), core, wall, ratio(core, "dense/sgemm/" + threads, 8).c_str(),
                    ratio(core, problem + "/gather sgemm scatter/1", 10).c_str(),
                    ratio(core, problem + "/plain MLX/1", 10).c_str());
      }
      std::fflush(stdout);
    }
  }

 private:
  std::string ratio(double core, const std::string& of, int width) const {
    const auto found = seen_.find(of);
    char text[32];
    if (found == seen_.end())
      std::snprintf(text, sizeof(text), "%*s", width, "");
    else
      std::snprintf(text, sizeof(text), "%*.2f", width, core / found->second);
    return text;
  }
  std::map<std::string, double> seen_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool own_table = std::none_of(argv, argv + argc, [](const char* a) {
    return std::string_view(a).starts_with("--benchmark_format");
  });
  benchmark::Initialize(&argc, argv);
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
#if defined(LATTICE_HAS_BLAS)
  for (const int threads : {1, 2})
    add("dense/sgemm", threads, [threads](benchmark::State& state) {
      bench::LargeGemm gemm(threads);
      time(state, gemm.flop(), [&] { gemm.run(); });
    });
#endif
  static std::vector<Scene> scenes;
  for (const char* name : {"lidar", "room"}) scenes.push_back(make_scene(name));
  for (const Scene& s : scenes) {
    for (const int c : {16, 32, 64, 128})
      for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient})
        add_problem(s, "subm 3x3x3", s.submanifold, pass, c, c, mx::float32, true);
    for (const int c : {32, 64, 128})
      for (const mx::Dtype dtype : {mx::float16, mx::bfloat16})
        for (const Pass pass : {Pass::forward, Pass::weight_gradient})
          add_problem(s, "subm 3x3x3", s.submanifold, pass, c, c, dtype, false);
    for (const auto& [c_in, c_out] : {std::pair(3, 32), {1, 16}, {33, 33}, {96, 96}})
      add_problem(s, "subm 3x3x3", s.submanifold, Pass::forward, c_in, c_out, mx::float32, false);
    for (const int c : {32, 64}) {
      add_problem(s, "strided 2x2x2", s.strided, Pass::forward, c, c, mx::float32, true);
      add_problem(s, "transposed 2x2x2", s.transposed, Pass::forward, c, c, mx::float32, true);
    }
  }
  for (const Pass pass : {Pass::forward, Pass::input_gradient, Pass::weight_gradient})
    add_problem(scenes[0], "subm 3x3x3", scenes[0].submanifold, pass, 256, 256, mx::float32, false);
  SpeedTable table;
  own_table ? benchmark::RunSpecifiedBenchmarks(&table) : benchmark::RunSpecifiedBenchmarks();
}
