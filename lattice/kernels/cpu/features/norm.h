// Normalization of rows by channel, together with the sum and ReLU that surround it in residual
// networks. Each function is one pass over memory.
//
//   moments     mean[c] = sum_r x[r, c] / n,  var[c] = sum_r (x[r, c] - mean[c])^2 / n;
//               both 0 when n = 0
//   norm_rows   y = relu((x - mean) * scale + shift + residual); relu and residual optional
//   norm_sums   g' = g where y > 0, else 0 (without relu: g' = g);
//               s0[c] = sum_r g',  s1[c] = sum_r g' (x - mean)
//   norm_back   dx = g' * a + (x - mean) * b + d, and g' itself where it is asked for
//
// Sums: float32 over pieces of 128 rows, even and odd rows apart, added in float64 in order.
// Squares are taken about the mean of their piece and moved to the common mean in float64 (Chan,
// Golub, LeVeque 1983). Vectors (C,) are float32.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

struct Rows {
  FloatType storage;
  int64_t rows, channels;
};

void moments(const Rows& shape, const void* x, float* mean, float* var);

struct NormRows {
  const void* x;
  const float *mean, *scale, *shift;
  const void* residual;  // or null
  bool relu;
  void* y;
};
void norm_rows(const Rows& shape, const NormRows& call);

// y null: no relu.
void norm_sums(const Rows& shape, const void* x, const void* g, const void* y, const float* mean,
               float* s0, float* s1);

struct NormBack {
  const void *x, *g, *y;  // y null: no relu
  const float *mean, *a, *b, *d;
  void* dx;
  void* masked;  // g', or null
};
void norm_back(const Rows& shape, const NormBack& call);

}  // namespace lattice::cpu
