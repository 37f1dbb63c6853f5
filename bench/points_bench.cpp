// Points to voxels: best CPU time of all threads, ns per point (counter ns_point); best wall time
// is wall_point.
//   points_bench --benchmark_filter=scan
#include <benchmark/benchmark.h>
#include <mlx/mlx.h>

#include <chrono>
#include <functional>
#include <limits>
#include <string>

#include "bench/support/clouds.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/points.h"

namespace {

using namespace lattice;

struct Data {
  mx::array points, feats;
  PointOptions options;
};

Data make(const bench::Cloud& cloud, float edge) {
  const int n = static_cast<int>(cloud.size() / 3);
  Data data{mx::array(cloud.data(), {n, 3}, mx::float32), mx::random::normal({n, 4}), {}};
  data.options.voxel_size = {edge, edge, edge};
  mx::eval(data.points, data.feats);
  return data;
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run(benchmark::State& state, const Data& data, int threads,
         const std::function<void(const Data&)>& body) {
  cpu::set_thread_count(threads);
  double best = std::numeric_limits<double>::infinity(), wall = best;
  for (auto _ : state) {
    const double begin = bench::cpu_seconds(), at = wall_seconds();
    body(data);
    best = std::min(best, bench::cpu_seconds() - begin);
    wall = std::min(wall, wall_seconds() - at);
  }
  const double n = data.points.shape(0);
  state.counters["ns_point"] = best / n * 1e9;
  state.counters["wall_point"] = wall / n * 1e9;
  state.counters["points"] = n;
}

}  // namespace

int main(int argc, char** argv) {
  mx::set_default_device(mx::Device::cpu);
  mx::set_cache_limit(size_t{4} << 30);
  static const std::pair<const char*, Data> kData[] = {
      {"sweep", make(bench::sweep(), 0.1f)},
      {"scan", make(bench::scan(1000000, false), 0.02f)},
      {"shuffled_scan", make(bench::scan(1000000, true), 0.02f)},
  };
  static const std::pair<const char*, std::function<void(const Data&)>> kBodies[] = {
      {"sparse_quantize",
       [](const Data& d) {
         benchmark::DoNotOptimize(sparse_quantize(d.points, d.options).counts);
       }},
      {"voxelize_mean_4",
       [](const Data& d) {
         mx::array y = voxelize(d.points, d.feats, d.options).feats();
         y.eval();
       }},
      {"voxelize_and_gradient",
       [](const Data& d) {
         mx::array g = mx::grad([&](const mx::array& f) {
           return mx::sum(voxelize(d.points, f, d.options).feats());
         })(d.feats);
         g.eval();
       }},
      {"devoxelize_linear_4",
       [](const Data& d) {
         mx::array y = devoxelize(d.points, voxelize(d.points, d.feats, d.options), d.options);
         y.eval();
       }},
  };
  for (const auto& [scene, data] : kData)
    for (const auto& [what, body] : kBodies)
      for (int threads : {1, 2})
        benchmark::RegisterBenchmark(
            (std::string(scene) + "/" + what + "/threads:" + std::to_string(threads)).c_str(),
            [&data = data, &body = body, threads](benchmark::State& state) {
              run(state, data, threads, body);
            })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
