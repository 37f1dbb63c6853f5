#include "lattice/kernels/cpu/features/distance.h"

#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/distance_tiles.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kRows = 64;       // of a, taken together
constexpr int64_t kColumns = 1024;  // of b, taken together

float norm(const float* v, int64_t c) {
  float sum = 0;
  for (int64_t i = 0; i < c; ++i) sum += v[i] * v[i];
  return std::sqrt(sum);
}

}  // namespace

void distance_matrix(const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance kind,
                     float* d) {
  const bool cosine = kind == Distance::cosine;
  Buffer<float> b_norms(cosine ? m : 0);
  for (int64_t j = 0; j < b_norms.size(); ++j) b_norms[j] = norm(b + j * c, c);
  const DistanceTiles tiles(b, m, c);
  parallel_range(n, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t j0 = 0; j0 < m; j0 += kColumns) {
      const int64_t count = std::min(kColumns, m - j0);
      tiles.run(a + begin * c, end - begin, j0, count, cosine, d + begin * m + j0, m);
      for (int64_t r = begin; r < end && kind != Distance::squared; ++r) {
        float* out = d + r * m + j0;
        if (!cosine) {
          for (int64_t j = 0; j < count; ++j) out[j] = std::sqrt(out[j]);
          continue;
        }
        const float own = norm(a + r * c, c);
        for (int64_t j = 0; j < count; ++j)
          out[j] = 1.0f - out[j] / std::max(own * b_norms[j0 + j], 1e-8f);
      }
    }
  });
}

}  // namespace lattice::cpu
