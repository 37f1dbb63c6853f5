// Distance matrices against MLX's broadcast, in one run: float32, one thread, best CPU time.
//
//   distance_bench
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/distance.h"

using namespace lattice;

int main() {
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  const auto best = [](const auto& make) {
    double least = 1e30;
    for (int i = 0; i < 5; ++i) {
      const double begin = bench::cpu_seconds();
      mx::array d = make();
      d.eval();
      least = std::min(least, bench::cpu_seconds() - begin);
    }
    return least;
  };
  constexpr int kRows = 2048;
  for (const int c : {3, 16, 64}) {
    mx::array a = mx::random::normal({kRows, c}), b = mx::random::normal({kRows, c});
    mx::eval({a, b});
    const double ours = best([&] { return indexed_distance(a, b); });
    const double gradient = best([&] {
      return mx::grad([&](const mx::array& v) { return mx::sum(indexed_distance_blocked(v, b)); })(
          a);
    });
    const double plain = best([&] {
      return mx::sqrt(
          mx::sum(mx::square(mx::subtract(mx::expand_dims(a, 1), mx::expand_dims(b, 0))), 2));
    });
    std::printf(
        "%d x %d x %-3d %8.2f ms, %5.2f ns per pair, gradient %8.2f ms, MLX %8.2f ms (%.1f "
        "times)\n",
        kRows, kRows, c, ours * 1e3, ours * 1e9 / (double{kRows} * kRows), gradient * 1e3,
        plain * 1e3, plain / ours);
  }
}
