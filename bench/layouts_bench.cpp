// Layouts of attention on scenes: best CPU time of all threads, ns per row (counter ns_row).
//   layouts_bench --benchmark_filter=room
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <string>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/geometry/layouts.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice::cpu;
using lattice::support::Coords;

const Coords& scene(const std::string& name) {
  static std::map<std::string, Coords> kept;
  if (!kept.contains(name)) kept[name] = lattice::support::scene(name).coords;
  return kept[name];
}

template <typename Run>
void time_rows(benchmark::State& state, const std::string& name, const Run& run) {
  const Coords& c = scene(name);
  const CoordSpan span{c.data(), static_cast<int64_t>(c.size()) / 4, false};
  double best = 1e30;
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    run(span);
    best = std::min(best, lattice::bench::cpu_seconds() - begin);
  }
  state.counters["ns_row"] = best * 1e9 / static_cast<double>(span.rows);
}

void patches(benchmark::State& state, const std::string& name, Curve curve) {
  time_rows(state, name, [&](const CoordSpan& span) {
    const CurveOrder order = curve_order(span, curve, curve_frame(bounding_box(span)));
    const int64_t clouds[] = {span.rows};
    benchmark::DoNotOptimize(patch_slots(order.rows.span(), clouds, 1024));
  });
}

void windows(benchmark::State& state, const std::string& name) {
  time_rows(state, name, [&](const CoordSpan& span) {
    benchmark::DoNotOptimize(window_slots(span, {8, 8, 8}, {4, 4, 4}));
  });
}

void blocks(benchmark::State& state, const std::string& name) {
  time_rows(state, name, [&](const CoordSpan& span) {
    benchmark::DoNotOptimize(curve_blocks(span, Curve::z, 1, curve_frame(bounding_box(span))));
  });
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"lidar", "room"}) {
    benchmark::RegisterBenchmark((name + "/patches_z").c_str(), patches, name, Curve::z);
    benchmark::RegisterBenchmark((name + "/patches_hilbert").c_str(), patches, name,
                                 Curve::hilbert);
    benchmark::RegisterBenchmark((name + "/windows").c_str(), windows, name);
    benchmark::RegisterBenchmark((name + "/blocks").c_str(), blocks, name);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
