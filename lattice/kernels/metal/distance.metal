// Distances between all rows of a (n, c) and b (m, c), without an array of differences. A group of
// 16 x 16 threads computes a tile of d, and reads 16 channels of 16 rows of both at a time.
//
//   squared:   d[i, j] = sum_c (a[i, c] - b[j, c])^2          euclidean: its square root
//   cosine:    d[i, j] = 1 - <a[i], b[j]> / max(|a[i]| |b[j]|, 1e-8)
//
// float32; sums by ascending c.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/portable/distance_sizes.h"

namespace lattice {
using namespace metal;

enum Metric { kSquared, kEuclidean, kCosine };

constant constexpr int kSide = 16;
constant constexpr int kPitch = kSide + 1;  // rows of a tile start in different banks

// Tiles of a and b, kSide * kPitch values each.
struct DistanceMemory {
  threadgroup float* left;
  threadgroup float* right;
};

// at = (j, i), lane = the place in the group. All threads of a group take part.
template <int kMetric, typename A, typename B>
METAL_FUNC void distance_tile(device float* d, A a, B b, DistanceSizes sizes, DistanceMemory memory,
                              uint2 at, uint2 lane) {
  const int n = sizes.n, m = sizes.m, channels = sizes.channels;
  threadgroup float* left = memory.left;
  threadgroup float* right = memory.right;
  const int i = int(at.y), j = int(at.x), x = int(lane.x), y = int(lane.y),
            row = j - x + y;  // of b that this thread reads
  float sum = 0.0f, of_a = 0.0f, of_b = 0.0f;
  for (int first = 0; first < channels; first += kSide) {
    const int c = first + x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    left[y * kPitch + x] =
        i < n && c < channels ? a[size_t(i) * size_t(channels) + size_t(c)] : 0.0f;
    right[y * kPitch + x] =
        row < m && c < channels ? b[size_t(row) * size_t(channels) + size_t(c)] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < kSide; ++k) {
      const float p = left[y * kPitch + k], q = right[x * kPitch + k];
      if (kMetric == kCosine) {
        sum += p * q;
        of_a += p * p;
        of_b += q * q;
      } else {
        sum += (p - q) * (p - q);
      }
    }
  }
  if (i >= n || j >= m) return;
  if (kMetric == kEuclidean) sum = sqrt(sum);
  if (kMetric == kCosine) sum = 1.0f - sum / max(sqrt(of_a) * sqrt(of_b), 1e-8f);
  d[size_t(i) * size_t(m) + size_t(j)] = sum;
}

}  // namespace lattice
