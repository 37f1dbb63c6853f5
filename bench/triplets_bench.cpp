// MVMR and VVOR on random triplets, against a large sgemm and plain MLX operations, in one run.
//
//   triplets_bench   float32; 27 matrices, 100,000 triplets, 8,192 rows at both ends, in random
//                    order
//
// GFLOP = 2 T G C M, over CPU seconds. mean +- standard deviation of 12 runs, and the best. The
// relation of the triplets is made once; "with lists" makes it in each call. "each": one matrix per
// triplet, against memory that is only read (written). "buckets": five triplets for each (matrix,
// output row), as dense scans have.
#include <mlx/mlx.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/triplets.h"
#include "lattice/routes/conv.h"
#include "tests/support/random.h"

namespace {

using namespace lattice;
using namespace lattice::routes;

constexpr int kTriplets = 100000, kRows = 8192, kTaps = 27;

struct Times {
  double mean = 0, deviation = 0, least = 1e30;
};

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Times times(int repeats, double (*clock)(), const std::function<void()>& work) {
  std::vector<double> all;
  for (int i = 0; i < repeats; ++i) {
    const double begin = clock();
    work();
    all.push_back(clock() - begin);
  }
  Times t;
  for (const double v : all) t.mean += v / repeats, t.least = std::min(t.least, v);
  for (const double v : all) t.deviation += (v - t.mean) * (v - t.mean) / repeats;
  t.deviation = std::sqrt(t.deviation);
  return t;
}

mx::array ids(int n, int below, uint64_t seed, int repeat = 1) {
  support::Random random(seed);
  std::vector<int32_t> v;
  for (int i = 0; i < n; ++i)
    v.push_back(i % repeat ? v.back()
                           : static_cast<int32_t>(random.below(static_cast<uint64_t>(below))));
  return mx::array(v.data(), {n}, mx::int32);
}

mx::array values(mx::Shape shape, uint64_t seed) {
  mx::array a = mx::random::normal(shape, mx::float32, mx::random::key(seed));
  a.eval();
  return a;
}

void evaluate(mx::array a) { a.eval(); }

void line(const std::string& what, int groups, int c, double flop, const Times& t, double sgemm,
          const std::string& more) {
  std::printf("%-16s G %d C = M = %-3d %8.2f +- %5.2f ms, best %7.1f GFLOP/s, %4.2f of sgemm%s\n",
              what.c_str(), groups, c, t.mean * 1e3, t.deviation * 1e3, flop / t.least * 1e-9,
              flop / t.least / sgemm, more.c_str());
  std::fflush(stdout);
}

std::string times_text(const char* what, double ratio) {
  char text[80];
  std::snprintf(text, sizeof(text), ", %.1f %s", ratio, what);
  return text;
}

void check(const mx::array& ours, const mx::array& plain) {
  const float error = mx::max(mx::abs(mx::subtract(ours, plain))).item<float>();
  const float scale = mx::max(mx::abs(plain)).item<float>();
  if (!(error <= 1e-4f * scale)) throw std::runtime_error("error " + std::to_string(error / scale));
}

void shared(int groups, int c, double sgemm) {
  const mx::array k = ids(kTriplets, kTaps, 1), i = ids(kTriplets, kRows, 2),
                  o = ids(kTriplets, kRows, 3);
  const mx::array a = values({kTaps, groups, c, c}, 4), b = values({kRows, groups, c}, 5),
                  g = values({kRows, groups, c}, 6);
  const double flop = 2.0 * kTriplets * groups * c * c;
  const Relation::Ptr r = triplet_relation(k, i, o, kTaps, kRows, kRows);
  const mx::array x = mx::reshape(b, {kRows, groups * c}), gy = mx::reshape(g, {kRows, groups * c});
  mx::array w = mx::contiguous(mx::reshape(mx::transpose(a, {0, 2, 1, 3}), {kTaps, c, groups * c}));
  w.eval();
  // y of mvmr and u of vvor from MLX operations: the rows of one tap at a time.
  const ConvProblem shape{r, groups * c, groups * c, groups};
  const mx::Device cpu(mx::Device::cpu);
  ConvAsked forward{shape, x, {w}};
  forward.stream = cpu;
  const OuterAsked backward{shape, x, gy, cpu};
  check(mx::reshape(mvmr(a, b, r), {kRows, groups * c}), conv_with_mlx(forward));
  const double plain =
      times(2, bench::cpu_seconds, [&] { evaluate(conv_with_mlx(forward)); }).least;
  const double plain_outer =
      times(2, bench::cpu_seconds, [&] { evaluate(outer_with_mlx(backward)); }).least;
  cpu::set_thread_count(1);
  const Times t = times(12, bench::cpu_seconds, [&] { evaluate(mvmr(a, b, r)); });
  const Times made = times(5, bench::cpu_seconds, [&] { evaluate(mvmr(a, k, b, i, o, kRows)); });
  const double one = times(8, wall_seconds, [&] { evaluate(mvmr(a, b, r)); }).least;
  cpu::set_thread_count(2);
  const double two = times(8, wall_seconds, [&] { evaluate(mvmr(a, b, r)); }).least;
  cpu::set_thread_count(1);
  line("mvmr", groups, c, flop, t, sgemm,
       times_text("times MLX", plain / t.least) + times_text("times with two threads", one / two) +
           times_text("ms with lists", made.least * 1e3));
  const Relation::Ptr q = triplet_relation(k, i, o, kTaps, kRows, kRows);
  const Times u = times(12, bench::cpu_seconds, [&] { evaluate(vvor(b, g, q)); });
  line("vvor", groups, c, flop, u, sgemm, times_text("times MLX", plain_outer / u.least));
}

// One matrix per triplet: matrices of 2,048 triplets are 8 MiB and more, far beyond the caches.
void each(int groups, int c, double sgemm) {
  const int n = (64 << 20) / (4 * groups * c * c);
  const mx::array i = ids(n, kRows, 2), o = ids(n, kRows, 3);
  const mx::array a = values({n, groups, c, c}, 4), b = values({kRows, groups, c}, 5),
                  g = values({kRows, groups, c}, 6);
  const Relation::Ptr r = triplet_relation(std::nullopt, i, o, n, kRows, kRows);
  std::vector<uint64_t> memory(size_t{8} << 20, 1), other(memory.size(), 2);
  uint64_t sum = 0;
  const double reading = times(8, bench::cpu_seconds, [&] {
                           for (const uint64_t v : memory) sum ^= v;
                           asm volatile("" : : "r"(sum) : "memory");
                         }).least;
  const double copying = times(8, bench::cpu_seconds, [&] {
                           std::copy(memory.begin(), memory.end(), other.begin());
                           asm volatile("" : : "r"(other.data()) : "memory");
                         }).least;
  const double flop = 2.0 * n * groups * c * c;
  for (const MatrixLayout layout : {MatrixLayout::gcm, MatrixLayout::gmc}) {
    const Times t = times(8, bench::cpu_seconds, [&] { evaluate(mvmr(a, b, r, layout)); });
    line(layout == MatrixLayout::gcm ? "mvmr each gcm" : "mvmr each gmc", groups, c, flop, t, sgemm,
         times_text("of reading", reading / t.least) +
             times_text("of copying", copying / 2 / t.least));
  }
  const Times t = times(8, bench::cpu_seconds, [&] { evaluate(vvor(b, g, r)); });
  line("vvor each", groups, c, flop, t, sgemm, times_text("of copying", copying / 2 / t.least));
}

// Five triplets for each (matrix, output row).
void buckets(int c, double sgemm) {
  const mx::array k = ids(kTriplets, kTaps, 1, 5), i = ids(kTriplets, kRows, 2),
                  o = ids(kTriplets, kRows, 3, 5);
  const mx::array a = values({kTaps, 1, c, c}, 4), b = values({kRows, 1, c}, 5);
  const Relation::Ptr r = triplet_relation(k, i, o, kTaps, kRows, kRows);
  const Times t = times(12, bench::cpu_seconds, [&] { evaluate(mvmr(a, b, r)); });
  line("mvmr buckets", 1, c, 2.0 * kTriplets * c * c, t, sgemm, "");
}

}  // namespace

int main() {
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  double sgemm = 1e11;
#if defined(LATTICE_HAS_BLAS)
  bench::LargeGemm gemm(1);
  sgemm = gemm.flop() / times(3, bench::cpu_seconds, [&] { gemm.run(); }).least;
#endif
  std::printf("sgemm %.1f GFLOP/s\n", sgemm * 1e-9);
  for (const int c : {16, 32, 64}) shared(1, c, sgemm);
  shared(8, 32, sgemm);
  for (const int c : {16, 32, 64}) buckets(c, sgemm);
  each(1, 32, sgemm);
  each(4, 16, sgemm);
}
