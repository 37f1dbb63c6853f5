// Numbers of kernels/metal/distance.metal, filled by the host and read by name in the kernel.
// Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct DistanceSizes {
  int n, m, channels;  // rows of a, rows of b
};

}  // namespace lattice
