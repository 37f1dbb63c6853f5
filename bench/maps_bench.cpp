// Dense 2D layers of the map of SECOND: our kernels on all cells, MLX's convolution, and a large
// product of a BLAS, in FLOP per CPU second of one thread.
//   maps_bench --benchmark_filter=ours
#include <benchmark/benchmark.h>
#include <mlx/mlx.h>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/maps.h"

namespace {

using namespace lattice;

constexpr int kHeight = 200, kWidth = 176;

struct Layer {
  mx::array map, weight;
  Layer(int c_in, int c_out)
      : map(mx::random::normal({1, kHeight, kWidth, c_in})),
        weight(mx::random::normal({c_out, 1, 3, 3, c_in})) {
    mx::eval({map, weight});
  }
  double flop() const {
    return 2.0 * kHeight * kWidth * 9 * map.shape(3) * static_cast<double>(weight.shape(0));
  }
};

template <typename F>
void timed(benchmark::State& state, double flop, const F& work) {
  cpu::set_thread_count(1);
  work();  // relations are built
  double least = 1e30;
  for (auto _ : state) least = std::min(least, bench::best(1, work));
  state.counters["GFLOP_per_s"] = flop / least / 1e9;
  state.counters["cpu_ms"] = least * 1e3;
}

void ours(benchmark::State& state) {
  const Layer layer(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const PackedKernel packed = pack_kernel(layer.weight);
  timed(state, layer.flop(), [&] {
    const SparseTensor y = subm_conv3d(from_map(layer.map), packed, std::nullopt,
                                       {KernelSpec({1, 3, 3}), std::nullopt, 1});
    mx::eval({to_map(y)});
  });
}

void mlx(benchmark::State& state) {
  const Layer layer(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const mx::array w = mx::squeeze(layer.weight, 1);
  timed(state, layer.flop(), [&] { mx::eval({mx::conv2d(layer.map, w, {1, 1}, {1, 1})}); });
}

BENCHMARK(ours)->Args({128, 128})->Args({256, 128})->Args({64, 64})->Unit(benchmark::kMillisecond);
BENCHMARK(mlx)->Args({128, 128})->Unit(benchmark::kMillisecond)->Iterations(1);

#if defined(LATTICE_HAS_BLAS)
void sgemm(benchmark::State& state) {
  bench::LargeGemm gemm(1);
  timed(state, gemm.flop(), [&] { gemm.run(); });
}
BENCHMARK(sgemm)->Unit(benchmark::kMillisecond);
#endif

}  // namespace

BENCHMARK_MAIN();
