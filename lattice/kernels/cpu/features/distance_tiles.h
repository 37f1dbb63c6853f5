// Distances from some rows of a to some rows of b, after the rows of b were packed once for vector
// code.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// The rows of b (m, c) in panels. Panel p holds c rows of kWidth values. Its column j is row p *
// kWidth + j of b, or 0 after the last row.
class DistanceTiles {
 public:
  static constexpr int64_t kWidth = 64;

  DistanceTiles(const float* b, int64_t m, int64_t c);
  // out[r, j] = sum_i (a[r, i] - b[first + j, i])^2      or with `products`
  // out[r, j] = <a[r], b[first + j]>                     r < rows, j < count
  // a is (rows, c), out (rows, ld). `first` is a multiple of kWidth.
  void run(const float* a, int64_t rows, int64_t first, int64_t count, bool products, float* out,
           int64_t ld) const;

 private:
  int64_t c_;
  Buffer<float> panels_;
};

}  // namespace lattice::cpu
