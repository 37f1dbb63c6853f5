// Products with a matrix for each edge on every instruction set, both layouts, against float64.
#include "lattice/kernels/cpu/features/per_edge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Case {
  int64_t groups, c, m;
};

std::vector<float> values(support::Random& random, int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(random.below(2001)) * 1e-3f - 1.0f;
  return v;
}

// Edges of each group g of `keys`, in order.
struct Grouped {
  std::vector<int32_t> offsets, order;
  Grouped(const std::vector<int32_t>& keys, int64_t n) {
    for (int64_t g = 0; g < n; ++g) {
      offsets.push_back(static_cast<int32_t>(order.size()));
      for (size_t e = 0; e < keys.size(); ++e)
        if (keys[e] == g) order.push_back(static_cast<int32_t>(e));
    }
    offsets.push_back(static_cast<int32_t>(order.size()));
  }
};

TEST(Pairs, MatchesFloat64) {
  constexpr int64_t kIn = 7, kOut = 9, kMatrices = 40, kEdges = 50;
  support::on_each_target([&] {
    support::Random random(3);
    for (const Case& z : {Case{1, 1, 1}, {2, 5, 17}, {1, 16, 64}, {3, 33, 31}, {1, 70, 130}}) {
      std::vector<int32_t> in, out, k;
      for (int64_t e = 0; e < kEdges; ++e) {
        in.push_back(static_cast<int32_t>(random.below(kIn)));
        out.push_back(static_cast<int32_t>(random.below(kOut)));
        k.push_back(static_cast<int32_t>(random.below(kMatrices)));
      }
      // Arrays of exactly the size that may be read: AddressSanitizer sees more.
      const std::vector<float> x = values(random, kIn * z.groups * z.c),
                               a = values(random, kMatrices * z.groups * z.c * z.m),
                               g = values(random, kOut * z.groups * z.m);
      const Grouped by_out(out, kOut), by_k(k, kMatrices);
      const ConvShape shape{z.groups * z.c, z.groups * z.m, z.groups};
      std::vector<float> y(g.size()), dots(g.size()), u(a.size());
      const PerEdgeEdges to_rows{
          kOut, by_out.offsets.data(), by_out.order.data(), in.data(), out.data(), k.data()};
      const PerEdgeEdges to_matrices{kMatrices, by_k.offsets.data(), by_k.order.data(),
                                     in.data(), out.data(),          k.data()};
      const int64_t matrix = z.c * z.m;
      apply_matrices(to_rows, shape, x.data(), {a.data(), z.groups * matrix, matrix, z.m, 1},
                     y.data());
      // The same numbers read as (k, g, m, c).
      apply_matrices(to_rows, shape, x.data(), {a.data(), z.groups * matrix, matrix, 1, z.c},
                     dots.data());
      outer_matrices(to_matrices, shape, x.data(), g.data(), u.data());
      std::vector<double> want_y(y.size()), want_dots(y.size()), want_u(u.size());
      for (size_t e = 0; e < kEdges; ++e)
        for (int64_t q = 0; q < z.groups; ++q)
          for (int64_t c = 0; c < z.c; ++c)
            for (int64_t m = 0; m < z.m; ++m) {
              const size_t base = static_cast<size_t>((k[e] * z.groups + q) * matrix);
              const size_t row = static_cast<size_t>((out[e] * z.groups + q) * z.m + m);
              const double v = double{x[static_cast<size_t>((in[e] * z.groups + q) * z.c + c)]};
              want_y[row] += v * double{a[base + static_cast<size_t>(c * z.m + m)]};
              want_dots[row] += v * double{a[base + static_cast<size_t>(m * z.c + c)]};
              want_u[base + static_cast<size_t>(c * z.m + m)] += v * double{g[row]};
            }
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(double{y[i]}, want_y[i], 1e-4);
        ASSERT_NEAR(double{dots[i]}, want_dots[i], 1e-4);
      }
      for (size_t i = 0; i < u.size(); ++i) ASSERT_NEAR(double{u[i]}, want_u[i], 1e-4);
    }
  });
}

}  // namespace
}  // namespace lattice::cpu
