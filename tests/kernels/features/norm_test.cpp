// Norm kernels against float64 formulas: storages, odd channels, no rows, and the same bits for any
// number of threads.
#include "lattice/kernels/cpu/features/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
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
struct Case {
  Rows shape;
  std::vector<T> x, g, y, residual;
  std::vector<float> mean, a, b, d;
};

template <typename T>
Case<T> make(FloatType storage, int64_t rows, int64_t channels) {
  support::Random random{static_cast<uint64_t>(rows * 131 + channels)};
  const int64_t n = rows * channels;
  return {{storage, rows, channels},
          values<T>(random, n, 3),
          values<T>(random, n),
          values<T>(random, n),
          values<T>(random, n),
          values<float>(random, channels, 3),
          values<float>(random, channels),
          values<float>(random, channels),
          values<float>(random, channels)};
}

template <typename T>
double at(const std::vector<T>& v, int64_t i) {
  return double{widen(v[static_cast<size_t>(i)])};
}

template <typename T>
void check(FloatType storage, double unit) {
  for (const int64_t rows : {0, 1, 127, 300})
    for (const int64_t channels : {1, 5, 16, 33}) {
      const Case<T> t = make<T>(storage, rows, channels);
      std::vector<float> mean(static_cast<size_t>(channels)), var(mean), s0(mean), s1(mean);
      moments(t.shape, t.x.data(), mean.data(), var.data());
      norm_sums(t.shape, t.x.data(), t.g.data(), t.y.data(), t.mean.data(), s0.data(), s1.data());
      std::vector<T> out(t.x.size()), dx(t.x.size()), kept(t.x.size());
      norm_rows(t.shape, {t.x.data(), t.mean.data(), t.a.data(), t.b.data(), t.residual.data(),
                          true, out.data()});
      norm_back(t.shape, {t.x.data(), t.g.data(), t.y.data(), t.mean.data(), t.a.data(), t.b.data(),
                          t.d.data(), dx.data(), kept.data()});
      for (int64_t c = 0; c < channels; ++c) {
        double m = 0, v = 0, e0 = 0, e1 = 0;
        for (int64_t r = 0; r < rows; ++r)
          m += at(t.x, r * channels + c) / static_cast<double>(rows);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = r * channels + c;
          const double x = at(t.x, i), w = at(t.y, i) > 0 ? at(t.g, i) : 0,
                       centered = x - at(t.mean, c);
          v += std::pow(x - m, 2) / static_cast<double>(rows);
          e0 += w;
          e1 += w * centered;
          const double y = std::max(0.0, centered * at(t.a, c) + at(t.b, c) + at(t.residual, i));
          EXPECT_NEAR(at(out, i), y, unit * std::fabs(y) + 0x1p-20);
          const double back = w * at(t.a, c) + centered * at(t.b, c) + at(t.d, c);
          EXPECT_NEAR(at(dx, i), back, unit * std::fabs(back) + 0x1p-20 * 16);
          EXPECT_EQ(at(kept, i), w);
        }
        const auto slot = static_cast<size_t>(c);
        EXPECT_NEAR(double{mean[slot]}, m, 1e-6 * (std::fabs(m) + 1));
        EXPECT_NEAR(double{var[slot]}, v, 1e-5 * (v + 1e-3));
        EXPECT_NEAR(double{s0[slot]}, e0, 1e-4);
        EXPECT_NEAR(double{s1[slot]}, e1, 1e-3);
      }
    }
}

TEST(Norm, Float32) { check<float>(FloatType::f32, 0x1p-20); }
TEST(Norm, Float16) { check<half_t>(FloatType::f16, 0x1p-10); }
TEST(Norm, BFloat16) { check<bfloat_t>(FloatType::bf16, 0x1p-7); }

TEST(Norm, NoReluNoResidual) {
  const Case<float> t = make<float>(FloatType::f32, 40, 6);
  std::vector<float> y(t.x.size()), s0(6), s1(6), expected(6, 0);
  norm_rows(t.shape, {t.x.data(), t.mean.data(), t.a.data(), t.b.data(), nullptr, false, y.data()});
  EXPECT_LT(*std::min_element(y.begin(), y.end()), 0);
  norm_sums(t.shape, t.x.data(), t.g.data(), nullptr, t.mean.data(), s0.data(), s1.data());
  for (size_t i = 0; i < t.g.size(); ++i) expected[i % 6] += t.g[i];
  for (size_t c = 0; c < 6; ++c) EXPECT_NEAR(s0[c], expected[c], 1e-4);
}

TEST(Norm, NanStays) {
  const Rows one{FloatType::f32, 1, 2};
  const float x[] = {NAN, -1}, zero[] = {0, 0}, unit[] = {1, 1};
  float y[2];
  norm_rows(one, {x, zero, unit, zero, nullptr, true, y});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 0);
}

// Pieces of 128 rows whose means are far apart: what each piece has summed about its own mean is
// moved to the common one.
TEST(Norm, PiecesFarApart) {
  constexpr int64_t kRows = 1000, kChannels = 3;
  support::Random random(4);
  std::vector<float> x(kRows * kChannels), mean(kChannels), var(kChannels);
  for (int64_t i = 0; i < kRows * kChannels; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(random.uniform(-1, 1)) +
                                1000.0f * static_cast<float>(i / kChannels / 250);
  moments({FloatType::f32, kRows, kChannels}, x.data(), mean.data(), var.data());
  for (int64_t c = 0; c < kChannels; ++c) {
    double m = 0, v = 0;
    for (int64_t r = 0; r < kRows; ++r) m += at(x, r * kChannels + c) / kRows;
    for (int64_t r = 0; r < kRows; ++r) v += std::pow(at(x, r * kChannels + c) - m, 2) / kRows;
    EXPECT_NEAR(double{mean[static_cast<size_t>(c)]}, m, 1e-6 * m);
    EXPECT_NEAR(double{var[static_cast<size_t>(c)]}, v, 1e-6 * v);
  }
}

TEST(Norm, SameBitsForAnyThreads) {
  const Case<float> t = make<float>(FloatType::f32, 4000, 33);
  const int before = thread_count();
  std::vector<std::vector<float>> seen;
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    std::vector<float> all(4 * 33 + 2 * t.x.size());
    float* p = all.data();
    moments(t.shape, t.x.data(), p, p + 33);
    norm_sums(t.shape, t.x.data(), t.g.data(), t.y.data(), t.mean.data(), p + 66, p + 99);
    norm_rows(t.shape, {t.x.data(), t.mean.data(), t.a.data(), t.b.data(), nullptr, true, p + 132});
    norm_back(t.shape, {t.x.data(), t.g.data(), t.y.data(), t.mean.data(), t.a.data(), t.b.data(),
                        t.d.data(), p + 132 + t.x.size(), nullptr});
    seen.push_back(std::move(all));
  }
  set_thread_count(before);
  for (const auto& other : seen)
    EXPECT_EQ(std::memcmp(other.data(), seen[0].data(), other.size() * 4), 0);
}

}  // namespace
}  // namespace lattice::cpu
