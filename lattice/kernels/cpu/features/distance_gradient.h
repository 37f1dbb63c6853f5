// Gradients of all distances between two sets of rows, from the weights of the differences:
//
//   to_a[i, c] = sum_j w[i, j] (a[i, c] - b[j, c])
//   to_b[j, c] = sum_i w[i, j] (b[j, c] - a[i, c])
//
// Rows are subtracted before they are summed: differences of near points are exact, and differences
// of two sums are not. All arrays are float32 and row-contiguous.
//
// Sums over j have 16 parts in blocks of 1,024 columns (lane_sum-inl.h). Sums over i ascend in
// chunks of 128 rows, and the chunks are added in order. So the number of threads does not change
// the bits, and neither does the width of the vectors.
#pragma once

#include <cstdint>

namespace lattice::cpu {

struct WeightedPairs {
  const float* w;  // (n, m)
  const float* a;  // (n, c)
  const float* b;  // (m, c)
  int64_t n, m, c;
};

// to_a is (n, c), to_b is (m, c).
void distance_gradient(const WeightedPairs& pairs, float* to_a, float* to_b);

}  // namespace lattice::cpu
