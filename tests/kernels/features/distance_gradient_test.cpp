// Gradients of distances from weights of the differences, against float64.
#include "lattice/kernels/cpu/features/distance_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Gradients {
  std::vector<float> a, b;
  bool operator==(const Gradients&) const = default;
};

struct Pairs {
  int64_t n, m, c;
  std::vector<float> a, b, w;

  Pairs(int64_t rows, int64_t columns, int64_t channels, float offset = 0)
      : n(rows), m(columns), c(channels) {
    support::Random random(7);
    const auto fill = [&](std::vector<float>& to, int64_t size, float shift) {
      for (int64_t i = 0; i < size; ++i)
        to.push_back(static_cast<float>(random.below(2001)) * 1e-3f - 1 + shift);
    };
    fill(a, n * c, offset);
    fill(b, m * c, offset);
    fill(w, n * m, 0);
  }
  Gradients run() const {
    // What stands in the results before must not matter.
    Gradients out{std::vector<float>(a.size(), 5), std::vector<float>(b.size(), 5)};
    distance_gradient({w.data(), a.data(), b.data(), n, m, c}, out.a.data(), out.b.data());
    return out;
  }
};

double at(const std::vector<float>& values, int64_t i) {
  return double{values[static_cast<size_t>(i)]};
}

void check(const Pairs& p) {
  const Gradients found = p.run();
  std::vector<double> a(p.a.size()), b(p.b.size()), a_terms(a), b_terms(b);
  for (int64_t i = 0; i < p.n; ++i)
    for (int64_t j = 0; j < p.m; ++j)
      for (int64_t c = 0; c < p.c; ++c) {
        const double slope = at(p.w, i * p.m + j) * (at(p.a, i * p.c + c) - at(p.b, j * p.c + c));
        a[static_cast<size_t>(i * p.c + c)] += slope;
        b[static_cast<size_t>(j * p.c + c)] -= slope;
        a_terms[static_cast<size_t>(i * p.c + c)] += std::fabs(slope);
        b_terms[static_cast<size_t>(j * p.c + c)] += std::fabs(slope);
      }
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(double{found.a[i]}, a[i], 1e-5 * a_terms[i]) << "a " << i << " n " << p.n;
  for (size_t i = 0; i < b.size(); ++i)
    ASSERT_NEAR(double{found.b[i]}, b[i], 1e-5 * b_terms[i]) << "b " << i << " m " << p.m;
}

TEST(DistanceGradient, OddSizesAndNone) {
  for (const int64_t n : {0, 1, 3, 4, 5, 127, 128, 129})
    for (const int64_t m : {0, 1, 15, 16, 17, 100}) check(Pairs(n, m, 3));
  for (const int64_t c : {0, 1, 2, 5, 16, 19}) check(Pairs(9, 33, c));
}

TEST(DistanceGradient, MoreColumnsThanABlock) {
  for (const int64_t m : {1023, 1024, 1025, 2100}) check(Pairs(6, m, 2));
  check(Pairs(300, 1030, 3));
}

// a - b is exact for points that are near each other, wherever they are.
TEST(DistanceGradient, FarFromTheOrigin) { check(Pairs(20, 40, 3, 5000)); }

TEST(DistanceGradient, AnyNumberOfThreadsHasTheSameBits) {
  const Pairs p(700, 150, 3);
  const int before = thread_count();
  set_thread_count(1);
  const Gradients one = p.run();
  for (const int threads : {2, 5}) {
    set_thread_count(threads);
    EXPECT_EQ(p.run(), one) << threads;
  }
  set_thread_count(before);
}

// Columns that are not there add nothing to an infinite row.
TEST(DistanceGradient, InfinityStaysInfinity) {
  Pairs p(2, 3, 1);
  p.a[0] = std::numeric_limits<float>::infinity();
  p.w = {1, 1, 1, 1, 1, 1};
  EXPECT_EQ(p.run().a[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(p.run().a[1]));
}

}  // namespace
}  // namespace lattice::cpu
