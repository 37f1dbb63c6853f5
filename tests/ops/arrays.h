// Small arrays of the tests of derivatives.
#pragma once

#include <mlx/mlx.h>

namespace lattice {

namespace mx = mlx::core;

inline mx::array dot(const mx::array& a, const mx::array& b) { return mx::sum(mx::multiply(a, b)); }

inline double value(mx::array a) {
  a = mx::astype(a, mx::float32);
  a.eval();
  return double{a.item<float>()};
}

// <a, b> in float32.
inline double product(const mx::array& a, const mx::array& b) {
  return value(dot(mx::astype(a, mx::float32), mx::astype(b, mx::float32)));
}

inline mx::array normal(const mx::Shape& shape, uint64_t seed) {
  return mx::random::normal(shape, mx::float32, mx::random::key(seed));
}

}  // namespace lattice
