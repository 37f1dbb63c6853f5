// Norms of rows against float64 formulas: storages, odd channels, no rows, and the same bits for
// any number of threads.
#include "lattice/kernels/cpu/features/row_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/random.h"
#include "tests/support/values.h"

namespace lattice::cpu {
namespace {

using support::values;

template <typename T>
void check(FloatType storage, int64_t rows, int64_t channels, bool centered, double bound) {
  support::Random random{static_cast<uint64_t>(rows * 131 + channels)};
  const auto x = values<T>(random, rows * channels, 1), g = values<T>(random, rows * channels);
  const auto weight = values<float>(random, channels), bias = values<float>(random, channels);
  const Rows shape{storage, rows, channels};
  const RowNorm call{x.data(), weight.data(), bias.data(), 1e-5f, centered};
  std::vector<T> y(x.size()), dx(x.size());
  std::vector<float> e(x.size());
  row_norm(shape, call, y.data());
  row_norm_back(shape, call, g.data(), dx.data(), e.data());
  const auto over = static_cast<double>(channels);
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(channels)) {
    const auto value = [&](const std::vector<T>& a, size_t c) { return double{widen(a[at + c])}; };
    const auto n = static_cast<size_t>(channels);
    double mean = 0, square = 0, first = 0, second = 0;
    for (size_t c = 0; c < n; ++c) mean += centered ? value(x, c) / over : 0;
    for (size_t c = 0; c < n; ++c) square += std::pow(value(x, c) - mean, 2) / over;
    const double r = 1 / std::sqrt(square + 1e-5);
    for (size_t c = 0; c < n; ++c) {
      const double k = value(g, c) * double{weight[c]};
      first += centered ? k / over : 0;
      second += k * (value(x, c) - mean) * r / over;
    }
    for (size_t c = 0; c < n; ++c) {
      const double h = (value(x, c) - mean) * r, k = value(g, c) * double{weight[c]};
      EXPECT_NEAR(value(y, c), h * double{weight[c]} + double{bias[c]}, bound);
      EXPECT_NEAR(value(dx, c), r * (k - first - h * second), bound * (1 + r));
      EXPECT_NEAR(double{e[at + c]}, value(g, c) * h, bound);
    }
  }
}

TEST(RowNorm, Formulas) {
  for (const bool centered : {true, false})
    for (const int64_t channels : {2, 3, 8, 16, 17, 33, 64, 100}) {
      check<float>(FloatType::f32, 5, channels, centered, 2e-5);
      check<half_t>(FloatType::f16, 3, channels, centered, 2e-2);
      check<bfloat_t>(FloatType::bf16, 3, channels, centered, 1e-1);
    }
  check<float>(FloatType::f32, 0, 4, true, 1);
  row_norm({FloatType::f32, 4, 0}, {nullptr, nullptr, nullptr, 1e-5f, true}, nullptr);
}

TEST(RowNorm, EqualValuesGiveTheBias) {
  const std::vector<float> x(12, 3.5f), bias(12, 0.25f);
  std::vector<float> y(12);
  row_norm({FloatType::f32, 1, 12}, {x.data(), nullptr, bias.data(), 1e-5f, true}, y.data());
  EXPECT_EQ(y, bias);
}

TEST(RowNorm, SameBitsForAnyNumberOfThreads) {
  support::Random random{3};
  const auto x = values<float>(random, 4000 * 33), g = values<float>(random, 4000 * 33);
  const Rows shape{FloatType::f32, 4000, 33};
  const RowNorm call{x.data(), nullptr, nullptr, 1e-5f, true};
  std::vector<std::vector<float>> found;
  const int before = thread_count();
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    std::vector<float> y(x.size() * 3);
    row_norm(shape, call, y.data());
    row_norm_back(shape, call, g.data(), y.data() + x.size(), y.data() + 2 * x.size());
    found.push_back(std::move(y));
  }
  set_thread_count(before);
  EXPECT_EQ(std::memcmp(found[0].data(), found[1].data(), found[0].size() * 4), 0);
}

}  // namespace
}  // namespace lattice::cpu
