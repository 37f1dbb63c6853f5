// Local pooling forward and backward on `room` and `lidar`, against memory copy and plain MLX
// operations, in one run.
//
//   pool_bench [channels]        default 64; float32, one thread, best CPU time of several runs
//
// bytes = what must move: the row of each edge for each array that is read by edge, and every row
// that is written. Matching and sharing also read their own row. The copy moves 256 MB; its bytes
// are read + written. The scenes are shuffled in memory, so a row is a random access of
// channels * 4 bytes. "sorted" scenes have their rows in the order (batch, x, y, z). "rows" is the
// copy of all rows in the order of a shuffled scene: what such an access can reach.
#include <mlx/mlx.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/reduce_edges.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/routes/pool.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;
using namespace lattice::routes;

double copy_bandwidth() {
  const size_t bytes = size_t{128} << 20;
  std::vector<char> a(bytes, 1), b(bytes, 2);
  return 2.0 * static_cast<double>(bytes) / bench::best(8, [&] {
           std::memcpy(b.data(), a.data(), bytes);
           asm volatile("" : : "r"(b.data()) : "memory");
         });
}

// Rows copied in shuffled order: bytes per second, read + written.
double row_bandwidth(int64_t channels) {
  const int64_t n = 172802;
  support::Random random(1);
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle_rows(order, 1);
  std::vector<float> x(static_cast<size_t>(n * channels), 1.0f), y(x.size());
  return 8.0 * static_cast<double>(x.size()) / bench::best(8, [&] {
           cpu::gather_rows({cpu::FloatType::f32, x.data(), n, channels}, order.data(), n, 0,
                            y.data());
         });
}

// The rows by (batch, x, y, z).
support::Coords sorted(const support::Coords& coords) {
  std::vector<std::array<int32_t, 4>> rows(coords.size() / 4);
  std::memcpy(rows.data(), coords.data(), coords.size() * sizeof(int32_t));
  std::sort(rows.begin(), rows.end());
  support::Coords out(coords.size());
  std::memcpy(out.data(), rows.data(), coords.size() * sizeof(int32_t));
  return out;
}

mx::array values(int64_t rows, int64_t channels, uint64_t seed) {
  mx::array a = mx::random::normal({static_cast<int>(rows), static_cast<int>(channels)},
                                   mx::float32, mx::random::key(seed));
  a.eval();
  return a;
}

void check(const std::string& title, const PoolAsked& asked, const mx::array& ours) {
  const mx::array plain = pool_with_mlx(asked);
  const float error = mx::max(mx::abs(mx::subtract(ours, plain))).item<float>();
  if (!(error <= 1e-4f)) throw std::runtime_error(title + ": error " + std::to_string(error));
}

void measure(const std::string& scene, const std::string& what, ReduceMode mode,
             const Relation::Ptr& r, int64_t channels, double copy) {
  PoolAsked asked{values(r->n_in(), channels, 1), r, mode};
  asked.stream = mx::Device(mx::Device::cpu);
  if (mode == ReduceMode::max_match || mode == ReduceMode::tie_share) {
    asked.match = {values(r->n_out(), channels, 1), asked.x};
    asked.x = values(mode == ReduceMode::max_match ? r->n_in() : r->n_out(), channels, 2);
  }
  const std::string title = scene + " " + what + " " + name(mode);
  const auto evaluate = [](mx::array a) { a.eval(); };
  check(title, asked, run(pool_rows(), asked));
  const double ours = bench::best(7, [&] { evaluate(run(pool_rows(), asked)); });
  const double plain = bench::best(3, [&] { evaluate(pool_with_mlx(asked)); });
  double rows = static_cast<double>(r->edge_count() + r->n_out());
  if (mode == ReduceMode::max_match) rows += static_cast<double>(r->edge_count() + r->n_out());
  if (mode == ReduceMode::tie_share) rows += 2.0 * static_cast<double>(r->n_out());
  const double speed = rows * static_cast<double>(channels) * 4 / ours;
  std::printf("%-11s %-26s %-7s %9lld edges %8.2f ms %6.2f GB/s %5.2f of copy %6.1f times MLX\n",
              scene.c_str(), what.c_str(), name(mode), static_cast<long long>(r->edge_count()),
              ours * 1e3, speed * 1e-9, speed / copy, plain / ours);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t channels = argc > 1 ? std::max(1, std::atoi(argv[1])) : 64;
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  const double copy = copy_bandwidth();
  std::printf("copy %.2f GB/s, rows %.2f GB/s, %lld channels\n", copy * 1e-9,
              row_bandwidth(channels) * 1e-9, static_cast<long long>(channels));
  for (const std::string name : {"room", "room sorted", "lidar"}) {
    support::Coords rows = support::scene(name.substr(0, name.find(' '))).coords;
    if (name.ends_with("sorted")) rows = sorted(rows);
    const CoordinateSet coords(
        mx::array(rows.data(), {static_cast<int>(rows.size() / 4), 4}, mx::int32), "pool_bench");
    const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
    const KernelSpec wide({3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1});
    const Relation::Ptr down =
        relate(RelationKind::forward, coords, half, std::nullopt, "pool_bench");
    const Relation::Ptr overlap =
        relate(RelationKind::forward, coords, wide, std::nullopt, "pool_bench");
    for (const auto& [what, r] : {std::pair("2x2x2 / 2", down), {"3x3x3 / 2", overlap}}) {
      const std::string forward = std::string(what) + " forward",
                        backward = std::string(what) + " backward";
      for (const ReduceMode mode : {ReduceMode::sum, ReduceMode::mean, ReduceMode::max})
        measure(name, forward, mode, r, channels, copy);
      for (const ReduceMode mode :
           {ReduceMode::sum, ReduceMode::mean_adjoint, ReduceMode::max_match})
        measure(name, backward, mode, r->reversed(), channels, copy);
      measure(name, backward, ReduceMode::tie_share, r, channels, copy);
    }
  }
}
