// Farthest point sampling, normals and the graph in feature space: best CPU time of one thread.
//   surface_bench --benchmark_filter=farthest
// bench/peers/points.py runs the same beside Open3D.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "bench/support/clouds.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/nearest.h"
#include "lattice/kernels/cpu/geometry/farthest.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"
#include "lattice/kernels/cpu/geometry/normals.h"

namespace {

using namespace lattice::cpu;
using lattice::bench::Cloud;

template <typename F>
void run(benchmark::State& state, const F& work) {
  set_thread_count(1);
  double least = 1e30;
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    work();
    least = std::min(least, lattice::bench::cpu_seconds() - begin);
  }
  state.counters["cpu_ms"] = least * 1e3;
}

void farthest(benchmark::State& state) {
  const Cloud cloud = lattice::bench::sweep();
  const int64_t count = state.range(0);
  Buffer<int32_t> rows(count);
  Buffer<float> d2(count);
  run(state, [&] {
    farthest_points(cloud.data(), static_cast<int64_t>(cloud.size()) / 3, 0, count, rows.data(),
                    d2.data());
  });
}

void normals(benchmark::State& state) {
  const Cloud cloud = lattice::bench::sweep();
  const int64_t n = static_cast<int64_t>(cloud.size()) / 3;
  Buffer<float> out(n * 3), bend(n);
  Places places;
  places.n = n;
  places.points = cloud.data();
  run(state, [&] {
    const Neighbors found = NeighborTree(places).search({state.range(0), {}});
    point_normals(cloud.data(), n, found.offsets.data(), found.sources.data(), {0, 0, 0},
                  out.data(), bend.data());
  });
}

void nearest(benchmark::State& state) {
  const int64_t n = state.range(0), c = state.range(1), k = 20;
  lattice::support::Random random(1);
  Cloud feats(static_cast<size_t>(n * c));
  for (float& v : feats) v = static_cast<float>(random.uniform(-1, 1));
  Buffer<int32_t> rows(n * k);
  Buffer<float> d2(n * k);
  run(state, [&] { nearest_rows(feats.data(), n, feats.data(), n, c, k, rows.data(), d2.data()); });
}

BENCHMARK(farthest)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);
BENCHMARK(normals)->Arg(16)->Unit(benchmark::kMillisecond);
BENCHMARK(nearest)->Args({1024, 64})->Args({4096, 128})->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
