// Farthest point sampling against comparing all points, bit for bit, for any number of threads.
#include "lattice/kernels/cpu/geometry/farthest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Found {
  std::vector<int32_t> rows;
  std::vector<float> d2;
  bool operator==(const Found&) const = default;
};

Found by_all_points(const std::vector<float>& p, int64_t first, int64_t count) {
  const int64_t n = static_cast<int64_t>(p.size()) / 3;
  std::vector<float> d2(static_cast<size_t>(n), std::numeric_limits<float>::infinity());
  Found out{{static_cast<int32_t>(first)}, {std::numeric_limits<float>::infinity()}};
  while (static_cast<int64_t>(out.rows.size()) < count) {
    const float* s = p.data() + int64_t{out.rows.back()} * 3;
    for (int64_t i = 0; i < n; ++i) {
      const float* q = p.data() + i * 3;
      const float dx = q[0] - s[0], dy = q[1] - s[1], dz = q[2] - s[2];
      d2[static_cast<size_t>(i)] =
          std::min(d2[static_cast<size_t>(i)], (dx * dx + dy * dy) + dz * dz);
    }
    const auto best = std::max_element(d2.begin(), d2.end());  // the first of equal ones
    out.rows.push_back(static_cast<int32_t>(best - d2.begin()));
    out.d2.push_back(*best);
  }
  return out;
}

Found sampled(const std::vector<float>& p, int64_t first, int64_t count) {
  Found out{std::vector<int32_t>(static_cast<size_t>(count)),
            std::vector<float>(static_cast<size_t>(count))};
  farthest_points(p.data(), static_cast<int64_t>(p.size()) / 3, first, count, out.rows.data(),
                  out.d2.data());
  return out;
}

TEST(Farthest, EqualsComparingAllPoints) {
  support::Random random(3);
  for (const int64_t n : {1, 2, 31, 32, 33, 1000, 5000})
    for (const int kind : {0, 1, 2}) {
      std::vector<float> p(static_cast<size_t>(n) * 3);
      for (float& v : p) {
        v = static_cast<float>(random.uniform(-5, 5));
        if (kind == 1) v = static_cast<float>(random.below(5));  // equal points and distances
        if (kind == 2) v *= 1e20f;                               // squares that overflow
      }
      const int64_t count = std::min<int64_t>(n, 200);
      EXPECT_EQ(sampled(p, n / 2, count), by_all_points(p, n / 2, count)) << n << " " << kind;
    }
}

TEST(Farthest, AnyNumberOfThreads) {
  support::Random random(4);
  std::vector<float> p(90000);
  for (float& v : p) v = static_cast<float>(random.uniform(-50, 50));
  const int before = thread_count();
  set_thread_count(1);
  const Found one = sampled(p, 0, 500);
  set_thread_count(4);
  EXPECT_EQ(sampled(p, 0, 500), one);
  set_thread_count(before);
}

}  // namespace
}  // namespace lattice::cpu
