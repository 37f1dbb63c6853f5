#include "lattice/kernels/cpu/features/nearest.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/distance_tiles.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kQueries = 32;   // of one task
constexpr int64_t kSources = 512;  // taken together: their distances stay in the first-level cache
constexpr int64_t kGroup = 16;     // distances that are compared at once

// Keys of the candidates: bits of a float >= 0 ascend with it, equal distances go by row.
int64_t key_of(float d2, int64_t row) { return int64_t{std::bit_cast<int32_t>(d2)} << 32 | row; }

// The k smallest of all distances that were shown to it.
struct Best {
  int64_t* keys;  // 2 k
  int64_t count = 0;
  float worst = std::numeric_limits<float>::infinity();

  // A candidate is kept when it is not above the k-th best so far; 2 k candidates are cut back to
  // k at a time. Most groups hold no candidate.
  void show(const float* d2, int64_t first, int64_t n, int64_t k) {
    for (int64_t j0 = 0; j0 < n; j0 += kGroup) {
      const int64_t end = std::min(n, j0 + kGroup);
      int near = 0;
      for (int64_t j = j0; j < end; ++j) near |= !(d2[j] > worst);
      if (!near) continue;
      for (int64_t j = j0; j < end; ++j) {
        if (d2[j] > worst) continue;
        keys[count++] = key_of(d2[j], first + j);
        if (count < 2 * k) continue;
        std::nth_element(keys, keys + k - 1, keys + count);
        count = k;
        worst = std::bit_cast<float>(static_cast<int32_t>(keys[k - 1] >> 32));
      }
    }
  }
  void write(int64_t k, int32_t* rows, float* out) const {
    std::partial_sort(keys, keys + k, keys + count);
    for (int64_t i = 0; i < k; ++i) {
      rows[i] = static_cast<int32_t>(keys[i] & 0xffffffff);
      out[i] = std::bit_cast<float>(static_cast<int32_t>(keys[i] >> 32));
    }
  }
};

}  // namespace

void nearest_rows(const float* source, int64_t n, const float* query, int64_t m, int64_t c,
                  int64_t k, int32_t* rows, float* distances) {
  const DistanceTiles tiles(source, n, c);
  parallel_range(m, kQueries, [&](int64_t begin, int64_t end) {
    Buffer<float> d2(kQueries * kSources);
    Buffer<int64_t> keys(kQueries * 2 * k);
    for (int64_t q0 = begin; q0 < end; q0 += kQueries) {
      const int64_t queries = std::min(kQueries, end - q0);
      Best best[kQueries];
      for (int64_t q = 0; q < queries; ++q) best[q] = {keys.data() + q * 2 * k};
      for (int64_t j0 = 0; j0 < n; j0 += kSources) {
        const int64_t count = std::min(kSources, n - j0);
        tiles.run(query + q0 * c, queries, j0, count, false, d2.data(), kSources);
        for (int64_t q = 0; q < queries; ++q) best[q].show(d2.data() + q * kSources, j0, count, k);
      }
      for (int64_t q = 0; q < queries; ++q)
        best[q].write(k, rows + (q0 + q) * k, distances + (q0 + q) * k);
    }
  });
}

}  // namespace lattice::cpu
