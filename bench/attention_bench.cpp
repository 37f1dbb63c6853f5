// Attention over segments against a large sgemm and against MLX operations, in one run: float32,
// one thread, best CPU time. FLOP: 4 T L H D forward, 10 T L H D backward.
//
// Then attention along the edges of 16 nearest neighbors and rotary positions, against MLX
// operations.
//
//   attention_bench [forward runs]       LATTICE_SIMD=AVX2 chooses the instruction set
#include <mlx/mlx.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/core/neighbors.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/neighbors.h"
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

// 40,000 points with 16 neighbors each, 4 heads of 16 channels.
void neighbors(int repeats) {
  constexpr int kPoints = 40000, kNear = 16, kEdgeHeads = 4, kEdgeSize = 16;
  const auto relation = build_knn_relation(
      {normal({kPoints, 3}, 5), std::nullopt, std::nullopt, std::nullopt}, kNear);
  const EdgeSegments edges = edge_segments(*relation);
  const mx::Shape shape{kPoints, kEdgeHeads, kEdgeSize};
  mx::array q = normal(shape, 6), k = normal(shape, 7), v = normal(shape, 8), g = normal(shape, 9);
  mx::eval({q, k, v, g, edges.sources});
  const auto run = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{neighbor_attention(in[0], in[1], in[2], edges)};
  };
  const auto composed = [&] {
    const mx::Shape rows{kPoints, kNear, kEdgeHeads, kEdgeSize};
    const mx::array key = mx::reshape(mx::take(k, edges.sources, 0), rows),
                    value = mx::reshape(mx::take(v, edges.sources, 0), rows);
    const mx::array logits = mx::sum(mx::multiply(mx::expand_dims(q, 1), key), 3, true);
    const mx::array weight = mx::softmax(mx::multiply(logits, mx::array(0.25f)), 1);
    return mx::sum(mx::multiply(weight, value), 1);
  };
  const double forward = bench::best(repeats, [&] { run({q, k, v})[0].eval(); });
  const double both = bench::best(repeats, [&] { mx::eval(mx::vjp(run, {q, k, v}, {g}).second); });
  const double plain = bench::best(2, [&] { composed().eval(); });
  const double n_edges = double{kPoints} * kNear;
  std::printf("neighbors, %d x %d edges of 4 x 16  forward %.2f ms (%.1f ns per edge)", kPoints,
              kNear, forward * 1e3, forward * 1e9 / n_edges);
  std::printf("  forward + backward %.2f ms  MLX operations forward %.1f times\n", both * 1e3,
              plain / forward);
}

// Three axes on 40,000 rows of 8 heads of 64 channels.
void turned(int repeats) {
  constexpr int kRows = 40000;
  mx::array x = normal({kRows, kHeads, kSize}, 1),
            places = mx::astype(mx::multiply(normal({kRows, 3}, 2), mx::array(50.0f)), mx::int32);
  mx::eval({x, places});
  const double ours = bench::best(repeats, [&] { rotary(x, places).eval(); });
  const double copy = bench::best(repeats, [&] { mx::add(x, mx::array(1.0f)).eval(); });
  std::printf("rotary, %d rows of 8 x 64  %.2f ms, %.1f times x + 1 of MLX\n", kRows, ours * 1e3,
              ours / copy);
}

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
  neighbors(repeats);
  turned(repeats);
}
