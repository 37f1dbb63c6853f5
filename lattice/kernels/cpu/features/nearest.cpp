#include "lattice/kernels/cpu/features/nearest.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/distance.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kQueries = 32;  // of one task: their distances stay in the cache

// Keys of the candidates: bits of a float >= 0 ascend with it, equal distances go by row.
int64_t key_of(float d2, int64_t row) { return int64_t{std::bit_cast<int32_t>(d2)} << 32 | row; }

// The first k of n distances in order. A candidate is kept when it is below the k-th best so far;
// 2 k candidates are cut back to k at a time.
void select(const float* d2, int64_t n, int64_t k, int64_t* keys, int32_t* rows, float* out) {
  int64_t count = 0;
  float worst = std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < n; ++j) {
    if (d2[j] > worst) continue;
    keys[count++] = key_of(d2[j], j);
    if (count == 2 * k) {
      std::nth_element(keys, keys + k - 1, keys + count);
      count = k;
      worst = std::bit_cast<float>(static_cast<int32_t>(keys[k - 1] >> 32));
    }
  }
  std::partial_sort(keys, keys + k, keys + count);
  for (int64_t i = 0; i < k; ++i) {
    rows[i] = static_cast<int32_t>(keys[i] & 0xffffffff);
    out[i] = std::bit_cast<float>(static_cast<int32_t>(keys[i] >> 32));
  }
}

}  // namespace

void nearest_rows(const float* source, int64_t n, const float* query, int64_t m, int64_t c,
                  int64_t k, int32_t* rows, float* distances) {
  parallel_range(m, kQueries, [&](int64_t begin, int64_t end) {
    Buffer<float> d2((end - begin) * n);
    Buffer<int64_t> keys(2 * k);
    distance_matrix(query + begin * c, end - begin, source, n, c, Distance::squared, d2.data());
    for (int64_t q = begin; q < end; ++q)
      select(d2.data() + (q - begin) * n, n, k, keys.data(), rows + q * k, distances + q * k);
  });
}

}  // namespace lattice::cpu
