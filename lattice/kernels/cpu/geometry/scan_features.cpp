#include "lattice/kernels/cpu/geometry/scan_features.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {
constexpr int64_t kGrain = 1 << 14;
}

template <typename T>
Buffer<int32_t> finite_rows(const T* points, int64_t n) {
  Buffer<int32_t> rows(n);
  int64_t kept = 0;
  for (int64_t r = 0; r < n; ++r) {
    const T* p = points + r * 3;
    rows[kept] = static_cast<int32_t>(r);
    kept += std::isfinite(p[0]) && std::isfinite(p[1]) && std::isfinite(p[2]);
  }
  rows.shrink(kept);
  return rows;
}

template <typename T>
std::array<double, 3> low_corner(const T* points, std::span<const int32_t> rows) {
  if (rows.empty()) return {0, 0, 0};
  const T* first = points + int64_t{rows[0]} * 3;
  std::array<T, 3> low{first[0], first[1], first[2]};
  for (const int64_t r : rows)
    for (int axis = 0; axis < 3; ++axis) low[axis] = std::min(low[axis], points[r * 3 + axis]);
  return {low[0], low[1], low[2]};
}

template <typename T>
void local_points(const T* points, std::span<const int32_t> rows,
                  const std::array<double, 3>& origin, float* out) {
  parallel_range(static_cast<int64_t>(rows.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j)
      for (int axis = 0; axis < 3; ++axis)
        out[j * 3 + axis] = static_cast<float>(
            static_cast<double>(points[int64_t{rows[j]} * 3 + axis]) - origin[axis]);
  });
}

template Buffer<int32_t> finite_rows(const float*, int64_t);
template Buffer<int32_t> finite_rows(const double*, int64_t);
template std::array<double, 3> low_corner(const float*, std::span<const int32_t>);
template std::array<double, 3> low_corner(const double*, std::span<const int32_t>);
template void local_points(const float*, std::span<const int32_t>, const std::array<double, 3>&,
                           float*);
template void local_points(const double*, std::span<const int32_t>, const std::array<double, 3>&,
                           float*);

float quantile(std::span<float> values, double share) {
  if (values.empty()) return 0;
  const double at = static_cast<double>(values.size() - 1) * share;
  const auto before = static_cast<size_t>(at);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(before), values.end());
  const float low = values[before];
  const size_t behind = before + 1;
  if (behind >= values.size()) return low;
  const float high =
      *std::min_element(values.begin() + static_cast<ptrdiff_t>(behind), values.end());
  // From the nearer end, so that the result never leaves [low, high].
  const double t = at - static_cast<double>(before);
  const float step = high - low;
  return t < 0.5 ? low + step * static_cast<float>(t) : high - step * static_cast<float>(1 - t);
}

void scan_table(const float* points, int64_t n, float voxel, int64_t width, float* table,
                const float* known_ground) {
  Buffer<float> heights(n);
  parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int axis = 0; axis < 3; ++axis) {
        const float q = points[p * 3 + axis] / voxel;
        table[p * width + axis] = q - std::floor(q) - 0.5f;
      }
      heights[p] = table[p * width + 3] = points[p * 3 + 2] / voxel;
    }
  });
  const float ground = known_ground ? *known_ground : quantile(heights.span(), 0.02);
  parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      table[p * width + 3] = (table[p * width + 3] - ground) / 10.0f;
  });
}

void scan_features(const float* means, const int32_t* counts, int64_t m, int64_t width,
                   float* feats) {
  parallel_range(m, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      const float* mean = means + v * width;
      float* out = feats + v * (width + 2);
      out[0] = 1;
      std::memcpy(out + 1, mean, 4 * sizeof(float));
      // Through double: the nearest float32, which log1p of float32 misses on some machines.
      out[5] = static_cast<float>(std::log1p(static_cast<double>(counts[v]))) / 2.0f;
      std::memcpy(out + 6, mean + 4, static_cast<size_t>(width - 4) * sizeof(float));
    }
  });
}

}  // namespace lattice::cpu
