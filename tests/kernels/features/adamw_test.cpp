// AdamW against float64 formulas at odd sizes, and the same bits for any number of threads.
#include "lattice/kernels/cpu/features/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Values {
  std::vector<float> p, g, m, v, p_out, m_out, v_out;
};

Values make(int64_t n) {
  support::Random random{static_cast<uint64_t>(n) + 5};
  const auto some = [&](double low) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = static_cast<float>(random.uniform(low, 1));
    return x;
  };
  const std::vector<float> room(static_cast<size_t>(n) + 1,
                                77.0f);  // one more: nothing is written there
  return {some(-1), some(-1), some(-1), some(0), room, room, room};
}

void run(Values& x) {
  adamw(static_cast<int64_t>(x.p.size()),
        {x.p.data(), x.g.data(), x.m.data(), x.v.data(), x.p_out.data(), x.m_out.data(),
         x.v_out.data(), 0.99f, 0.02f, 1.5f, 1e-6f, 1.0f, 0.9, 0.99});
}

TEST(AdamW, IsTheFormula) {
  for (const int64_t n : {0, 1, 7, 16, 33, 70001}) {
    Values x = make(n);
    run(x);
    for (size_t i = 0; i < x.p.size(); ++i) {
      const double g = double{x.g[i]}, b1 = 0.9, b2 = 0.99;
      const double m = b1 * double{x.m[i]} + (1 - b1) * g,
                   v = b2 * double{x.v[i]} + (1 - b2) * g * g;
      const double p =
          double{0.99f} * double{x.p[i]} - double{0.02f} * m / (1.5 * std::sqrt(v) + double{1e-6f});
      ASSERT_NEAR(double{x.m_out[i]}, m, 2e-7) << n;
      ASSERT_NEAR(double{x.v_out[i]}, v, 2e-7) << n;
      ASSERT_NEAR(double{x.p_out[i]}, p, 4e-7 * (1 + std::fabs(p))) << n;
    }
    EXPECT_EQ(x.p_out.back(), 77.0f);
  }
}

TEST(AdamW, SameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  Values one = make(70001), four = one;
  set_thread_count(1);
  run(one);
  set_thread_count(4);
  run(four);
  set_thread_count(before);
  EXPECT_EQ(one.p_out, four.p_out);
  EXPECT_EQ(one.m_out, four.m_out);
  EXPECT_EQ(one.v_out, four.v_out);
}

}  // namespace
}  // namespace lattice::cpu
