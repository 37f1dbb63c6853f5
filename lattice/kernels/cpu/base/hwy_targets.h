// Instruction sets that the vector kernels are compiled for. Include this file before
// <hwy/foreach_target.h>.
//
//   default              the baseline of the architecture, AVX2, AVX-512 (AVX3), NEON
//   LATTICE_SIMD=all     SSE4 as well
// LATTICE_SIMD=native only what the building machine has (-march=native): a quick build
//
// SSSE3 and AVX3_DL bring nothing to float32 arithmetic. The vectors of SVE and RVV have no fixed
// size, so they cannot be elements of an array, which the register blocks need.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#ifdef LATTICE_SIMD_ALL
#define LATTICE_OPTIONAL_TARGETS 0
#else
#define LATTICE_OPTIONAL_TARGETS HWY_SSE4
#endif
#define HWY_DISABLED_TARGETS                                                               \
  (LATTICE_OPTIONAL_TARGETS | HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128 | HWY_RVV)
#endif
