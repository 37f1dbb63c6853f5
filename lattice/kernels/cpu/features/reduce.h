// Sums over the rows of an array.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

// out[c] = sum_r x[r, c], x (rows, channels). float32 sums of pieces of 128 rows, added in float64
// in order, rounded once.
void sum_rows(FloatType storage, const void* x, int64_t rows, int64_t channels, void* out);

}  // namespace lattice::cpu
