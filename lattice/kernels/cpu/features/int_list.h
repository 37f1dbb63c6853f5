// What the list kernels of int_conv are given.
#pragma once

#include <cstdint>

namespace lattice::cpu {

inline constexpr int64_t kIntPanel = 32;  // output columns of a packed block

struct IntListCall {
  const uint8_t* x;
  int64_t pitch;  // bytes of a row of x
  const int32_t* in;
  const int32_t* out;
  int64_t n;
  int64_t bytes;  // that are read of each row, a multiple of 16
  const uint8_t* w;
  int32_t* sums;
  int32_t first;
  const int32_t* start;  // what the sums begin with, if the list writes them (put)
};
// once: no two edges of the list share an output row, so that blocks of edges are independent.
using IntListKernel = void (*)(const IntListCall&, bool once);

}  // namespace lattice::cpu
