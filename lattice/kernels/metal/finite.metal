// Whether arrays hold infinities or NaN. Each of `strips` simdgroups of an array reads every
// 32 * strips-th element and writes one flag, 1 where it found one. Compilers may assume that there
// are neither, so the bits are compared.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/portable/finite_sizes.h"

namespace lattice {
using namespace metal;

// flags (arrays, strips).
template <typename A>
METAL_FUNC void flag_strip(A a, device float* flags, FiniteSizes sizes, uint array, uint strip,
                           uint lane) {
  bool bad = false;
  const uint n = uint(sizes.size[array]), step = 32u * uint(sizes.strips);
  for (uint i = 32u * strip + lane; i < n; i += step)
    bad = bad || (as_type<uint>(float(a[i])) & 0x7f800000u) == 0x7f800000u;
  const bool any = simd_any(bad);
  if (lane == 0) flags[array * uint(sizes.strips) + strip] = any ? 1.0f : 0.0f;
}

}  // namespace lattice
