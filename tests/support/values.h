// Random values of any float type, and the name of a type.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "lattice/kernels/cpu/base/float_types.h"
#include "tests/support/random.h"

namespace lattice::support {

template <typename T>
constexpr cpu::FloatType float_type_of() {
  return std::is_same_v<T, float>         ? cpu::FloatType::f32
         : std::is_same_v<T, cpu::half_t> ? cpu::FloatType::f16
                                          : cpu::FloatType::bf16;
}

// Multiples of 0.001 in [-1, 1].
template <typename T>
std::vector<T> values(int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<T> out(static_cast<size_t>(n));
  for (T& v : out) v = cpu::narrow<T>(static_cast<float>(random.below(2001)) / 1000.0f - 1.0f);
  return out;
}

// Uniform in [around - 2, around + 2).
template <typename T>
std::vector<T> values(Random& random, int64_t n, double around = 0) {
  std::vector<T> out(static_cast<size_t>(n));
  for (T& v : out) v = cpu::narrow<T>(static_cast<float>(around + random.uniform(-2, 2)));
  return out;
}

}  // namespace lattice::support
