// Attention over segments against a large sgemm and against MLX operations, in one run: float32,
// one thread, best CPU time. FLOP: 4 T L H D forward, 10 T L H D backward.
//
//   attention_bench [forward runs]       LATTICE_SIMD=AVX2 chooses the instruction set
#include <mlx/mlx.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/attention.h"
#include "lattice/routes/attention.h"

using namespace lattice;

namespace {

constexpr int kHeads = 8, kSize = 64;

mx::array normal(const mx::Shape& shape, uint64_t seed) {
  return mx::random::normal(shape, mx::float32, mx::random::key(seed));
}

struct Problem {
  int rows, length;
  mx::array q, k, v, g, offsets;
  Problem(int n, int l)
      : rows(n),
        length(l),
        q(normal({n, kHeads, kSize}, 1)),
        k(normal({n, kHeads, kSize}, 2)),
        v(normal({n, kHeads, kSize}, 3)),
        g(normal({n, kHeads, kSize}, 4)),
        offsets(mx::arange(0, n + 1, l)) {
    mx::eval({q, k, v, g, offsets});
  }
  double products(double factor) const {
    return factor * double{kHeads * kSize} * double(rows) * double(length);
  }
  mx::array forward() const { return attention(q, k, v, offsets); }
  std::vector<mx::array> both() const {
    const auto f = [&](const std::vector<mx::array>& in) {
      return std::vector<mx::array>{attention(in[0], in[1], in[2], offsets)};
    };
    auto [out, grads] = mx::vjp(f, {q, k, v}, {g});
    grads.push_back(out[0]);
    return grads;
  }
  // The same from MLX operations.
  mx::array composed() const {
    const int n = rows / length;
    const auto heads = [&](const mx::array& x) {
      return mx::transpose(mx::reshape(x, {n, length, kHeads, kSize}), {0, 2, 1, 3});
    };
    const mx::array logits =
        mx::matmul(mx::multiply(heads(q), mx::array(0.125f)), mx::swapaxes(heads(k), -1, -2));
    const mx::array out = mx::matmul(mx::softmax(logits, -1), heads(v));
    return mx::reshape(mx::transpose(out, {0, 2, 1, 3}), q.shape());
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 7;
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  std::printf("instruction set: %s\n", cpu::simd_name());
  double sgemm = 0;
#if defined(LATTICE_HAS_BLAS)
  bench::LargeGemm gemm(1);
  sgemm = gemm.flop() / bench::best(repeats, [&] { gemm.run(); }) * 1e-9;
  std::printf("sgemm %.1f GFLOP/s\n", sgemm);
#endif
  for (const int length : {1024, 48, 17}) {
    const Problem p(length * std::max(1, 4096 / length), length);
    const double forward = bench::best(repeats, [&] { p.forward().eval(); });
    const double both = bench::best(repeats, [&] { mx::eval(p.both()); });
    const double plain = bench::best(2, [&] { p.composed().eval(); });
    const auto rate = [&](double factor, double seconds) {
      return p.products(factor) / seconds * 1e-9;
    };
    std::printf("length %5d  forward %8.2f ms %6.1f GFLOP/s", length, forward * 1e3,
                rate(4, forward));
    if (sgemm > 0) std::printf(" (%.2f of sgemm)", rate(4, forward) / sgemm);
    std::printf("  forward + backward %8.2f ms %6.1f GFLOP/s", both * 1e3, rate(14, both));
    if (sgemm > 0)
      std::printf(" (%.2f of sgemm, %.2f counted as 10 T L H D)", rate(14, both) / sgemm,
                  rate(10, both) / sgemm);
    std::printf("  MLX operations forward %.1f times\n", plain / forward);
    std::fflush(stdout);
  }
}
