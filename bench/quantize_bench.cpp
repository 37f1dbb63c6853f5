// Convolution with packed weights against the dense route on the dequantized weights, in one run.
//
//   quantize_bench                               the table
//   quantize_bench --benchmark_filter='room.*64' some of its lines
//   quantize_bench --benchmark_format=json       Google Benchmark's own report; also console, csv
//
// FLOP = 2 * edges * C_in * C_out over the CPU seconds of one thread. Each line alternates dense
// and packed calls, so a busy machine slows both; the ratio is of the best of each. Both must
// give the same bits before they are timed.
#include <benchmark/benchmark.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/support/cpu_time.h"
#include "lattice/core/relation.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/quantize.h"
#include "lattice/routes/conv.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;

struct Problem {
  std::string title;
  Relation::Ptr relation;
  int c;
  int bits;
  mx::Dtype dtype;
  bool gradient;  // of the features
};

mx::array values(const mx::Shape& shape, mx::Dtype dtype, uint64_t seed) {
  mx::array a = mx::astype(mx::random::normal(shape, mx::float32, mx::random::key(seed)), dtype);
  a.eval();
  return a;
}

void run_problem(benchmark::State& state, const Problem& p) {
  cpu::set_thread_count(1);
  const int n_k = static_cast<int>(p.relation->n_kernels());
  const mx::array x = values({static_cast<int>(p.relation->n_in()), p.c}, p.dtype, 1);
  const mx::array gy = values({static_cast<int>(p.relation->n_out()), p.c}, p.dtype, 2);
  const QuantizedWeight q =
      quantize_weight(values({n_k, p.c, p.c}, p.dtype, 3), std::nullopt, p.bits);
  const mx::array dense = mx::contiguous(dequantize_weight(q));
  mx::eval({q.weight(), q.scales(), q.biases(), dense});
  const routes::ConvWeight packed_weight = weight_of(q);
  const auto call = [&](const routes::ConvWeight& w) {
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{conv_rows(in[0], w, p.relation, std::nullopt, 1, {})};
    };
    mx::array y = p.gradient ? mx::vjp(f, {x}, {gy}).second[0] : f({x})[0];
    const double begin = bench::cpu_seconds();
    y.eval();
    return std::pair(bench::cpu_seconds() - begin, y);
  };
  if (!mx::array_equal(call(packed_weight).second, call({dense}).second).item<bool>())
    throw std::runtime_error(p.title + ": other bits than the dense route");
  double packed = 1e30, plain = 1e30;
  for (auto _ : state) {
    plain = std::min(plain, call({dense}).first);
    const double spent = call(packed_weight).first;
    packed = std::min(packed, spent);
    state.SetIterationTime(spent);
  }
  const double flop = 2.0 * static_cast<double>(p.relation->edge_count()) * p.c * p.c;
  state.counters["packed"] = flop / packed * 1e-9;
  state.counters["dense"] = flop / plain * 1e-9;
  state.counters["bytes"] = static_cast<double>(q.nbytes());
  state.counters["dense_bytes"] = static_cast<double>(dense.nbytes());
}

class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::printf("%-52s %11s %11s %7s %12s\n", "one thread", "packed GF/s", "dense GF/s", "ratio",
                "weight bytes");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto at = [&](const char* name) { return double{run.counters.at(name).value}; };
      std::printf("%-52s %11.1f %11.1f %7.2f %11.1f%%\n", run.run_name.function_name.c_str(),
                  at("packed"), at("dense"), at("packed") / at("dense"),
                  100 * at("bytes") / at("dense_bytes"));
      std::fflush(stdout);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool own_table = std::none_of(argv, argv + argc, [](const char* a) {
    return std::string_view(a).starts_with("--benchmark_format");
  });
  benchmark::Initialize(&argc, argv);
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  const auto add = [](const std::string& scene, const std::string& what, const Relation::Ptr& r,
                      int c, int bits, mx::Dtype dtype, bool gradient) {
    const std::string title = scene + "/" + what + (gradient ? " input grad" : " forward") + "/" +
                              graph::dtype_name(dtype) + " " + std::to_string(c) + "->" +
                              std::to_string(c) + " int" + std::to_string(bits);
    benchmark::RegisterBenchmark(title.c_str(),
                                 [p = Problem{title, r, c, bits, dtype, gradient}](
                                     benchmark::State& state) { run_problem(state, p); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.5);
  };
  for (const char* name : {"room", "lidar"}) {
    const support::Coords rows = support::scene(name).coords;
    const CoordinateSet coords(
        mx::array(rows.data(), {static_cast<int>(rows.size() / 4), 4}, mx::int32), "bench");
    const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
    const Relation::Ptr same =
        relate(RelationKind::submanifold, coords, KernelSpec(), std::nullopt, "bench");
    const Relation::Ptr strided =
        relate(RelationKind::forward, coords, half, std::nullopt, "bench");
    for (const int bits : {8, 4}) {
      for (const int c : {32, 64, 128}) add(name, "subm 3x3x3", same, c, bits, mx::float32, false);
      add(name, "subm 3x3x3", same, 64, bits, mx::float32, true);
      add(name, "subm 3x3x3", same, 64, bits, mx::float16, false);
      add(name, "subm 3x3x3", same, 64, bits, mx::bfloat16, false);
      add(name, "strided 2x2x2", strided, 64, bits, mx::float32, false);
      add(name, "pointwise", Relation::identity(coords.rows()), 64, bits, mx::float32, false);
    }
  }
  Table table;
  own_table ? benchmark::RunSpecifiedBenchmarks(&table) : benchmark::RunSpecifiedBenchmarks();
}
