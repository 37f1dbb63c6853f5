// Numbers of kernels/metal/optimizer.metal, filled by the host and read by name in the kernel.
// Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct AdamwSizes {
  float b1, r1, b2, r2, eps;  // r = 1 - b, formed in double
};

struct RunningSizes {
  float keep, take, wider;
};

}  // namespace lattice
