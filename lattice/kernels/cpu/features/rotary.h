// Rotary position encoding on up to three axes (Su et al. 2021, arXiv:2104.09864).
//
// A head has `size` channels. Axis a owns 2 P of them, after those of the axes before it, with P =
// size / (2 axes). Channels left over are copied. Pair m of axis a is channels 2 m and 2 m + 1 of
// its part, or with `halves` channels m and P + m. The pair is turned by the angle positions[row,
// a] base^(-m / P), a float32 product.
//
//   y0 = x0 cos - x1 sin      y1 = x0 sin + x1 cos
//
// inverse: by the negative angle, which is the gradient.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

struct RotaryShape {
  FloatType storage = FloatType::f32;
  int64_t rows = 0, heads = 0, size = 0, axes = 1;
  double base = 10000;
  bool inverse = false;
  bool halves = false;
};

// x and out are (rows, heads, size), positions (rows, axes).
void rotary(const RotaryShape& shape, const void* x, const float* positions, void* out);

}  // namespace lattice::cpu
