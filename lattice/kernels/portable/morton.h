// Morton codes (Morton 1966): bit b of x, y, z becomes bit 3b, 3b + 1, 3b + 2. Legal in C++20 and
// in MSL.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

namespace lattice::portable {

// Bit b of the low 21 bits of v moves to bit 3b; higher bits of v are dropped.
inline uint64_t spread3(uint64_t v) {
  v &= 0x1fffffu;
  v = (v | v << 32) & 0x001f00000000ffffu;
  v = (v | v << 16) & 0x001f0000ff0000ffu;
  v = (v | v << 8) & 0x100f00f00f00f00fu;
  v = (v | v << 4) & 0x10c30c30c30c30c3u;
  v = (v | v << 2) & 0x1249249249249249u;
  return v;
}

// The low 21 bits of each, x lowest.
inline uint64_t morton3(uint64_t x, uint64_t y, uint64_t z) {
  return spread3(x) | spread3(y) << 1 | spread3(z) << 2;
}

}  // namespace lattice::portable
