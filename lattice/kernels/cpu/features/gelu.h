// The Gaussian error linear unit and its slope.
//
//   gelu(x) = x Phi(x)         slope(x) = Phi(x) + x phi(x)
//   Phi(x) = (1 + erf(x / sqrt 2)) / 2,      phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
//
// erf is a quotient of polynomials on [-4, 4] and +-1 outside, with an absolute error below 3e-7
// (tested on every instruction set). NaN stays NaN; gelu(-infinity) is 0. One value does not depend
// on others, so any number of threads gives the same bits.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

// y[i] = gelu(x[i]), or slope(x[i]).
void gelu(FloatType storage, int64_t n, const void* x, bool slope, void* y);

}  // namespace lattice::cpu
