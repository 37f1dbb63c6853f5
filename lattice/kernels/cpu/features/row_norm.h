// Normalization of each row over its channels, and its gradient.
//
//   m = mean(x),  r = 1 / sqrt(mean((x - m)^2) + eps),  h = (x - m) r,  y = h weight + bias
//   k = g weight,  dx = r (k - mean(k) - h mean(k h)),  e = g h, whose sum over rows is d weight
//
// Without centering (root mean square): m = 0, and dx has no mean(k). Sums are float32 over the
// lanes of a vector, a row at a time: the number of threads does not change a bit. Vectors (C,) are
// float32; weight and bias may be null, which stands for 1 and 0.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/features/norm.h"

namespace lattice::cpu {

struct RowNorm {
  const void* x;
  const float *weight, *bias;
  float eps;
  bool centered;
};

void row_norm(const Rows& shape, const RowNorm& call, void* y);
// e is (rows, channels) float32, or null.
void row_norm_back(const Rows& shape, const RowNorm& call, const void* g, void* dx, float* e);

}  // namespace lattice::cpu
