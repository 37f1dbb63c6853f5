// Random numbers of tests, the same on every machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/splitmix64.h"

namespace lattice::support {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() { return cpu::splitmix64(state_); }
  // Uniform in [0, n), n >= 1. The bias of the remainder is below n / 2^64.
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  // Uniform in [lo, hi], both included, hi - lo < 2^64 - 1.
  int64_t between(int64_t lo, int64_t hi) {
    const uint64_t first = static_cast<uint64_t>(lo), count = static_cast<uint64_t>(hi) - first + 1;
    return static_cast<int64_t>(first + bits() % count);
  }
  // Uniform in [0, 1), a multiple of 2^-53.
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double lo, double hi) { return lo + (hi - lo) * unit(); }
  // Mean 0, standard deviation 1, support [-2.45, 2.45]: the scaled sum of two uniforms. No
  // transcendental function.
  double bump() { return (unit() + unit() - 1.0) * 2.449489742783178; }
  bool chance(double p) { return unit() < p; }

  template <typename T>
  void shuffle_rows(std::vector<T>& flat, int64_t width) {
    int64_t n = static_cast<int64_t>(flat.size()) / width;
    for (int64_t i = n - 1; i > 0; --i) {
      int64_t j = below(i + 1);
      for (int64_t c = 0; c < width; ++c) std::swap(flat[i * width + c], flat[j * width + c]);
    }
  }

 private:
  uint64_t state_;
};

}  // namespace lattice::support
