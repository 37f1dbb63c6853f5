// The 3D Hilbert curve: coordinates of b bits to the "transposed" Hilbert index, whose bits,
// interleaved with x highest, are the position on the curve. J. Skilling, "Programming the Hilbert
// curve", AIP Conference Proceedings 707 (2004), 381-387, with masks instead of branches. Legal in
// C++20 and in MSL.
//
//   if (bits >= 1) {
//     for (U bit = U(1) << (bits - 1); bit > 1; bit >>= 1) p = hilbert_unrotate(p, bit);
//     p = hilbert_gray(p);
//   }
//
// Both steps are separate so that a caller can run the loop over rows inside the loop over bits.
#pragma once

#ifndef __METAL_VERSION__
#include <cstdint>
#endif

namespace lattice::portable {

// U: an unsigned type of at least as many bits as the coordinates.
template <typename U>
struct Hilbert3 {
  U x, y, z;
};

// Undoes the rotation of the sub-cube that `bit` (a power of two) chooses, on the lower bits. A set
// bit inverts x; a clear bit swaps x with that axis. The code compares instead of shifting, because
// comparisons become vector code on every CPU.
template <typename U>
inline Hilbert3<U> hilbert_unrotate(Hilbert3<U> p, U bit) {
  const U low = bit - 1;
  p.x ^= (p.x & bit) == bit ? low : U(0);
  const U flip_y = (p.y & bit) == bit ? low : U(0), swap_y = (p.x ^ p.y) & (low ^ flip_y);
  p.x ^= swap_y | flip_y;
  p.y ^= swap_y;
  const U flip_z = (p.z & bit) == bit ? low : U(0), swap_z = (p.x ^ p.z) & (low ^ flip_z);
  p.x ^= swap_z | flip_z;
  p.z ^= swap_z;
  return p;
}

// Gray encoding: each axis is xored with the one before, then all with the parity of the higher
// bits of z.
template <typename U>
inline Hilbert3<U> hilbert_gray(Hilbert3<U> p) {
  p.y ^= p.x;
  p.z ^= p.y;
  U parity = p.z;
  for (int shift = 1; shift < int(sizeof(U)) * 8; shift *= 2) parity ^= parity >> shift;
  parity >>= 1;
  return {p.x ^ parity, p.y ^ parity, p.z ^ parity};
}

}  // namespace lattice::portable
