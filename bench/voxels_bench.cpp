// Points into voxels: best CPU time of one thread for a sweep.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "bench/support/clouds.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/geometry/voxels.h"

namespace {

using namespace lattice::cpu;

void sweep(benchmark::State& state) {
  const lattice::bench::Cloud cloud = lattice::bench::sweep();
  const int64_t n = static_cast<int64_t>(cloud.size()) / 3;
  const VoxelGrid grid{{-54, -54, -5}, {0.075f, 0.075f, 0.2f}, {1440, 1440, 40}};
  double least = 1e30;
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    benchmark::DoNotOptimize(voxelize_points(cloud.data(), n, 3, grid, 10, 160000).n_voxels);
    least = std::min(least, lattice::bench::cpu_seconds() - begin);
  }
  state.counters["cpu_ms"] = least * 1e3;
  state.counters["ns_per_point"] = least * 1e9 / static_cast<double>(n);
}

BENCHMARK(sweep)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
