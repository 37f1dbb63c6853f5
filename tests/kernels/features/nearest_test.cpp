// The k nearest rows in any number of dimensions against a stable sort of all distances.
#include "lattice/kernels/cpu/features/nearest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lattice/kernels/cpu/features/distance_tiles.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

std::vector<float> values(support::Random& random, int64_t count, bool whole) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out)
    v = whole ? static_cast<float>(random.below(4)) : static_cast<float>(random.uniform(-1, 1));
  return out;
}

void equals_sorting() {
  support::Random random(2);
  for (const int64_t n : {1, 7, 63, 65, 512, 1500})
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

TEST(Nearest, EqualsSorting) {
  support::on_each_target([] { equals_sorting(); });
}

// Blocks of rows and columns: rest rows, rest columns, one channel.
TEST(Nearest, DistancesOfTiles) {
  support::on_each_target([] {
    support::Random random(3);
    const int64_t n = 9, m = 131, c = 6;
    const auto a = values(random, n * c, false), b = values(random, m * c, false);
    const DistanceTiles tiles(b.data(), m, c);
    for (const bool products : {false, true}) {
      std::vector<float> out(static_cast<size_t>(n * m), -7.0f);
      tiles.run(a.data(), n, 64, m - 64, products, out.data(), m);
      for (int64_t r = 0; r < n; ++r)
        for (int64_t j = 0; j < m; ++j) {
          float sum = 0;
          for (int64_t i = 0; i < c && j < m - 64; ++i) {
            const float x = a[static_cast<size_t>(r * c + i)],
                        y = b[static_cast<size_t>((64 + j) * c + i)];
            sum += products ? x * y : (x - y) * (x - y);
          }
          ASSERT_EQ(out[static_cast<size_t>(r * m + j)], j < m - 64 ? sum : -7.0f);
        }
    }
  });
}

}  // namespace
}  // namespace lattice::cpu
