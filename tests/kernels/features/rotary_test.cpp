// Rotary positions against float64: sizes with and without channels left over, 1 to 3 axes, every
// storage. The inverse undoes the turn, and products depend on differences of positions only.
#include "lattice/kernels/cpu/features/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

template <typename T>
void check(const RotaryShape& s, double unit) {
  support::Random random(static_cast<uint64_t>(s.size * 4 + s.axes));
  std::vector<T> x(static_cast<size_t>(s.rows * s.heads * s.size)), y(x), back(x);
  std::vector<float> places(static_cast<size_t>(s.rows * s.axes));
  for (T& e : x) e = narrow<T>(static_cast<float>(random.uniform(-2, 2)));
  for (float& e : places) e = static_cast<float>(random.between(-50, 50));
  rotary(s, x.data(), places.data(), y.data());
  const int64_t pairs = s.size / (2 * s.axes);
  double worst = 0;
  for (int64_t r = 0; r < s.rows * s.heads; ++r)
    for (int64_t c = 0; c < s.size; ++c) {
      const auto value = [&](int64_t at) {
        return double{widen(x[static_cast<size_t>(r * s.size + at)])};
      };
      double expected = value(c);
      if (c < 2 * pairs * s.axes) {
        const int64_t axis = c / (2 * pairs), place = c % (2 * pairs),
                      pair = s.halves ? place % pairs : place / 2, step = s.halves ? pairs : 1;
        const bool first = s.halves ? place < pairs : place % 2 == 0;
        const double angle =
            double{places[static_cast<size_t>(r / s.heads * s.axes + axis)]} *
            std::pow(s.base, -static_cast<double>(pair) / static_cast<double>(pairs));
        expected = first ? value(c) * std::cos(angle) - value(c + step) * std::sin(angle)
                         : value(c - step) * std::sin(angle) + value(c) * std::cos(angle);
      }
      worst = std::max(worst,
                       std::fabs(double{widen(y[static_cast<size_t>(r * s.size + c)])} - expected));
    }
  EXPECT_LE(worst, unit) << s.size << " channels, " << s.axes << " axes";
  RotaryShape inverse = s;
  inverse.inverse = true;
  rotary(inverse, y.data(), places.data(), back.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(double{widen(back[i])}, double{widen(x[i])}, 2 * unit);
}

TEST(Rotary, NearFloat64AndItsInverse) {
  support::on_each_target([] {
    for (const int64_t axes : {1, 2, 3})
      for (const int64_t size : {1, 2, 5, 6, 12, 16, 31, 64})
        for (const bool halves : {false, true})
          check<float>({FloatType::f32, 9, 3, size, axes, 10000.0, false, halves}, 2e-5);
    check<float>({FloatType::f32, 0, 2, 8, 1, 10000.0, false}, 0);
    check<float>({FloatType::f32, 4, 1, 12, 3, 100.0, false}, 2e-5);
    check<half_t>({FloatType::f16, 9, 2, 18, 3, 10000.0, false}, 3e-3);
    check<bfloat_t>({FloatType::bf16, 9, 2, 18, 3, 10000.0, false}, 3e-2);
  });
}

TEST(Rotary, ProductsDependOnDifferencesOnly) {
  support::Random random(5);
  std::vector<float> q(24), k(24), a(24), b(24);
  for (auto* x : {&q, &k})
    for (float& e : *x) e = static_cast<float>(random.uniform(-1, 1));
  const RotaryShape shape{.rows = 1, .heads = 1, .size = 24, .axes = 3};
  const auto product = [&](float shift) {
    const float at[] = {1 + shift, 2 + shift, 3 + shift}, to[] = {4 + shift, shift, 7 + shift};
    rotary(shape, q.data(), at, a.data());
    rotary(shape, k.data(), to, b.data());
    double sum = 0;
    for (size_t i = 0; i < 24; ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  EXPECT_NEAR(product(0), product(17), 1e-5);
  EXPECT_GT(std::fabs(product(0) -
                      [&] {
                        double sum = 0;
                        for (size_t i = 0; i < 24; ++i) sum += double{q[i]} * double{k[i]};
                        return sum;
                      }()),
            1e-3);
}

}  // namespace
}  // namespace lattice::cpu
