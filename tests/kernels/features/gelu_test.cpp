// GELU and its slope against float64 on every instruction set of the build; ends of the range, NaN.
#include "lattice/kernels/cpu/features/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/hwy_targets.h"

namespace lattice::cpu {
namespace {

double phi(double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); }
double exact(double v, bool slope) {
  const double bell = std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0));
  return slope ? phi(v) + v * bell : v * phi(v);
}

TEST(Gelu, NearFloat64) {
  support::on_each_target([] {
    std::vector<float> x;
    for (int i = -20000; i <= 20003; ++i) x.push_back(static_cast<float>(i) * 5e-4f);
    std::vector<float> y(x.size());
    for (const bool slope : {false, true}) {
      gelu(FloatType::f32, static_cast<int64_t>(x.size()), x.data(), slope, y.data());
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i)
        worst = std::max(worst, std::fabs(double{y[i]} - exact(double{x[i]}, slope)) /
                                    std::max(1.0, std::fabs(double{x[i]})));
      EXPECT_LT(worst, 4e-7) << (slope ? "slope" : "value");
    }
  });
}

TEST(Gelu, EndsOfTheRange) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float x[] = {inf, -inf, nan, 0, -0.0f, 1e30f, -1e30f, 100};
  float y[8];
  gelu(FloatType::f32, 8, x, false, y);
  EXPECT_EQ(y[0], inf);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[5], 1e30f);
  EXPECT_EQ(y[6], 0);
  EXPECT_EQ(y[7], 100);
  gelu(FloatType::f32, 8, x, true, y);
  EXPECT_NEAR(double{y[0]}, 1, 1e-6);
  EXPECT_NEAR(double{y[1]}, 0, 1e-6);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_NEAR(double{y[3]}, 0.5, 1e-7);
  EXPECT_NEAR(double{y[6]}, 0, 1e-6);
}

TEST(Gelu, StoragesAndSizes) {
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<bfloat_t> x(static_cast<size_t>(n)), y(static_cast<size_t>(n) + 1, bfloat_t{7});
    std::vector<half_t> h(static_cast<size_t>(n)), k(static_cast<size_t>(n) + 1, half_t{7});
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = narrow<bfloat_t>(0.25f * static_cast<float>(i) - 3);
      h[i] = narrow<half_t>(0.25f * static_cast<float>(i) - 3);
    }
    gelu(FloatType::bf16, n, x.data(), false, y.data());
    gelu(FloatType::f16, n, h.data(), false, k.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = exact(0.25 * static_cast<double>(i) - 3, false);
      EXPECT_NEAR(double{widen(y[i])}, expected, 4e-3 * std::max(1.0, std::fabs(expected)));
      EXPECT_NEAR(double{widen(k[i])}, expected, 5e-4 * std::max(1.0, std::fabs(expected)));
    }
    EXPECT_EQ(y.back().bits, 7);  // nothing behind the end
    EXPECT_EQ(k.back().bits, 7);
  }
}

}  // namespace
}  // namespace lattice::cpu
