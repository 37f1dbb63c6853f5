// The k nearest rows in any number of dimensions against a stable sort of all distances.
#include "lattice/kernels/cpu/features/nearest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

std::vector<float> values(support::Random& random, int64_t count, bool whole) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out)
    v = whole ? static_cast<float>(random.below(4)) : static_cast<float>(random.uniform(-1, 1));
  return out;
}

TEST(Nearest, EqualsSorting) {
  support::Random random(2);
  for (const int64_t n : {1, 7, 100, 1500})
    for (const int64_t c : {1, 2, 5, 17})
      for (const bool whole : {true, false}) {
        const int64_t m = 70, k = std::min<int64_t>(n, 9);
        const auto source = values(random, n * c, whole), query = values(random, m * c, whole);
        std::vector<int32_t> rows(static_cast<size_t>(m * k));
        std::vector<float> d2(static_cast<size_t>(m * k));
        nearest_rows(source.data(), n, query.data(), m, c, k, rows.data(), d2.data());
        for (int64_t q = 0; q < m; ++q) {
          std::vector<float> all(static_cast<size_t>(n));
          for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t i = 0; i < c; ++i) {
              const float d =
                  query[static_cast<size_t>(q * c + i)] - source[static_cast<size_t>(j * c + i)];
              sum += d * d;
            }
            all[static_cast<size_t>(j)] = sum;
          }
          std::vector<int32_t> order(static_cast<size_t>(n));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) {
            return all[static_cast<size_t>(i)] < all[static_cast<size_t>(j)];
          });
          for (int64_t i = 0; i < k; ++i) {
            const size_t at = static_cast<size_t>(q * k + i);
            ASSERT_EQ(rows[at], order[static_cast<size_t>(i)]) << n << " " << c;
            ASSERT_EQ(d2[at], all[static_cast<size_t>(rows[at])]);
          }
        }
      }
}

}  // namespace
}  // namespace lattice::cpu
