// Coding of scenes with the models "octree", "lidar" and "lidar" fast: best CPU time, ns per row
// (counter ns_row), and bits per voxel. `python -m mlx_lattice bench codec` puts Draco, zstd and
// LAZ beside it.
//   codec_bench --benchmark_filter=room
#include <benchmark/benchmark.h>

#include <algorithm>
#include <limits>
#include <string>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/coding/lidar.h"
#include "lattice/kernels/cpu/coding/octree.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice::cpu;

void run(benchmark::State& state, const std::string& name, const std::string& model,
         bool decoding) {
  const LidarOptions options{&LidarNet::shipped(), model == "fast", {}};
  const bool octree = model == "octree";
  const lattice::support::Coords rows = lattice::support::scene(name).coords;
  const CoordSpan span{rows.data(), static_cast<int64_t>(rows.size()) / 4, false};
  std::vector<int32_t> sorted(rows.size()), back;
  std::vector<uint8_t> data;
  const auto encode = [&] {
    take_rows(span, morton_order(span).span(), sorted.data());
    const CoordSpan rows_in{sorted.data(), span.rows, false};
    data = octree ? encode_octree(rows_in, "bench") : encode_lidar(rows_in, options, "bench");
  };
  encode();
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    if (decoding)
      back = octree ? decode_octree(data, "bench") : decode_lidar(data, options, "bench");
    else
      encode();
    best = std::min(best, lattice::bench::cpu_seconds() - begin);
  }
  if (decoding && back != sorted) state.SkipWithError("wrong rows");
  state.counters["ns_row"] = best / static_cast<double>(span.rows) * 1e9;
  state.counters["bits_voxel"] =
      8 * static_cast<double>(data.size()) / static_cast<double>(span.rows);
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* name : {"lidar", "room", "random", "dense_block"})
    for (const char* model : {"octree", "lidar", "fast"})
      for (const bool decoding : {false, true})
        benchmark::RegisterBenchmark(
            (std::string(name) + "/" + model + (decoding ? "/decode" : "/encode")).c_str(),
            [=](benchmark::State& state) { run(state, name, model, decoding); })
            ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
