// Overlaps of rotated boxes and suppression: pairs per second and milliseconds of one thread.
//   boxes_bench --benchmark_filter=nms
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/boxes.h"
#include "tests/support/random.h"

namespace {

using namespace lattice::cpu;

// Boxes of cars in a square of `extent` meters.
std::vector<double> cars(int64_t n, double extent) {
  lattice::support::Random random(1);
  std::vector<double> rows;
  for (int64_t i = 0; i < n; ++i)
    for (const double v :
         {random.uniform(0, extent), random.uniform(0, extent), -1.0, random.uniform(3, 5),
          random.uniform(1.5, 2), 1.6, random.uniform(-3.2, 3.2)})
      rows.push_back(v);
  return rows;
}

template <typename F>
double least_seconds(benchmark::State& state, const F& work) {
  set_thread_count(1);
  double least = 1e30;
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    work();
    least = std::min(least, lattice::bench::cpu_seconds() - begin);
  }
  return least;
}

// The argument is the extent: 1 m, where all pairs overlap, or 100 km, where none do.
void pairs(benchmark::State& state) {
  const int64_t n = 1000;
  const std::vector<double> a = cars(n, static_cast<double>(state.range(0)));
  std::vector<double> out(static_cast<size_t>(n * n));
  const double seconds = least_seconds(
      state, [&] { overlap_matrix(a.data(), n, a.data(), n, BoxOverlap::bev, out.data()); });
  state.counters["Mpairs_per_s"] = static_cast<double>(n * n) / seconds / 1e6;
}

// 4,096 boxes; the first argument is the extent in meters, the second the threshold in percent.
void nms(benchmark::State& state) {
  const int64_t n = 4096;
  const std::vector<double> boxes = cars(n, static_cast<double>(state.range(0)));
  lattice::support::Random random(2);
  std::vector<float> scores(static_cast<size_t>(n));
  for (float& s : scores) s = static_cast<float>(random.unit());
  int64_t kept = 0;
  const double seconds = least_seconds(state, [&] {
    kept = suppress(boxes.data(), scores.data(), n, static_cast<double>(state.range(1)) / 100,
                    Suppression::rotated, -1, -1)
               .size();
  });
  state.counters["cpu_ms"] = seconds * 1e3;
  state.counters["kept"] = static_cast<double>(kept);
}

BENCHMARK(pairs)->Arg(1)->Arg(100000)->Unit(benchmark::kMillisecond);
BENCHMARK(nms)
    ->Args({100, 1})
    ->Args({100, 20})
    ->Args({100, 70})
    ->Args({1000, 20})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
