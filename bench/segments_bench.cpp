// Reductions over segments of rows, against memory copy and MLX's scatter-add, in one run.
//
//   segments_bench [channels]   default 64; float32; one thread, best CPU time of several runs,
//                               then two threads by the clock
//
// bytes = rows read + rows written. The copy moves 256 MB; its bytes are read + written. "reading"
// is a loop over 128 MB that only reads, which is what long segments do.
#include <mlx/mlx.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/segments.h"
#include "tests/support/random.h"

namespace {

using namespace lattice;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best(int repeats, double (*clock)(), const std::function<void()>& work) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double begin = clock();
    work();
    least = std::min(least, clock() - begin);
  }
  return least;
}

double copy_bandwidth() {
  const size_t bytes = size_t{128} << 20;
  std::vector<char> a(bytes, 1), b(bytes, 2);
  return 2.0 * static_cast<double>(bytes) / best(8, bench::cpu_seconds, [&] {
           std::memcpy(b.data(), a.data(), bytes);
           asm volatile("" : : "r"(b.data()) : "memory");
         });
}

// What a plain loop that only reads reaches: bytes per second.
double read_bandwidth() {
  std::vector<uint64_t> a(size_t{16} << 20, 1);
  uint64_t sum = 0;
  const double seconds = best(8, bench::cpu_seconds, [&] {
    for (const uint64_t v : a) sum ^= v;
    asm volatile("" : : "r"(sum) : "memory");
  });
  return static_cast<double>(a.size() * sizeof(uint64_t)) / seconds;
}

// Lengths of about `mean` rows that sum to n: all alike, or a few that hold nearly everything.
std::vector<int32_t> some_lengths(int64_t n, int64_t mean, bool skewed) {
  support::Random random(1);
  std::vector<int32_t> lengths;
  for (int64_t left = n; left > 0;) {
    const int64_t most = skewed && lengths.size() % 16 == 0 ? 30 * mean : 2 * mean;
    const int64_t length =
        std::min(left, static_cast<int64_t>(random.below(static_cast<uint64_t>(most + 1))));
    lengths.push_back(static_cast<int32_t>(length));
    left -= length;
  }
  return lengths;
}

void measure(const std::string& title, const mx::array& x, const std::vector<int32_t>& lengths,
             double copy) {
  const int64_t n = x.shape(0), channels = x.shape(1),
                segments = static_cast<int64_t>(lengths.size());
  const mx::array counts(lengths.data(), {static_cast<int>(segments)}, mx::int32);
  std::vector<int32_t> ids;
  for (int64_t s = 0; s < segments; ++s)
    ids.insert(ids.end(), static_cast<size_t>(lengths[static_cast<size_t>(s)]),
               static_cast<int32_t>(s));
  const mx::array to(ids.data(), {static_cast<int>(n)}, mx::int32);
  const auto evaluate = [](mx::array a) { a.eval(); };
  const auto scattered = [&] {
    return mx::scatter_add(mx::zeros({static_cast<int>(segments), static_cast<int>(channels)}),
                           {to}, mx::expand_dims(x, 1), {0});
  };
  const float error =
      mx::max(mx::abs(mx::subtract(segment_reduce(x, counts), scattered()))).item<float>();
  if (!(error <= 1e-3f * static_cast<float>(n) / static_cast<float>(segments) + 1e-2f))
    throw std::runtime_error(title + ": error " + std::to_string(error));
  const double plain = best(2, bench::cpu_seconds, [&] { evaluate(scattered()); });
  for (const char* operation : {"sum", "mean", "max"}) {
    const SegmentOptions options = segment_options(operation, "split", 0.0f, "segments_bench");
    cpu::set_thread_count(1);
    const double ours =
        best(7, bench::cpu_seconds, [&] { evaluate(segment_reduce(x, counts, options)); });
    const double one = best(5, wall_seconds, [&] { evaluate(segment_reduce(x, counts, options)); });
    cpu::set_thread_count(2);
    const double two = best(5, wall_seconds, [&] { evaluate(segment_reduce(x, counts, options)); });
    const double speed = static_cast<double>((n + segments) * channels) * 4 / ours;
    std::printf(
        "%-22s %-5s %8lld segments %8.2f ms %6.2f GB/s %5.2f of copy %6.1f times MLX, two threads "
        "%4.2f times one\n",
        title.c_str(), operation, static_cast<long long>(segments), ours * 1e3, speed * 1e-9,
        speed / copy, plain / ours, one / two);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int channels = argc > 1 ? std::max(1, std::atoi(argv[1])) : 64;
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  const double copy = copy_bandwidth();
  std::printf("copy %.2f GB/s, reading %.2f GB/s, %d channels\n", copy * 1e-9,
              read_bandwidth() * 1e-9, channels);
  constexpr int kRows = 500000;
  mx::array x = mx::random::normal({kRows, channels});
  x.eval();
  measure("about 4 rows", x, some_lengths(kRows, 4, false), copy);
  measure("about 100 rows", x, some_lengths(kRows, 100, false), copy);
  measure("about 5,000, skewed", x, some_lengths(kRows, 5000, true), copy);
  measure("8 clouds", x, some_lengths(kRows, kRows / 8, false), copy);
  measure("one segment", x, {kRows}, copy);
}
