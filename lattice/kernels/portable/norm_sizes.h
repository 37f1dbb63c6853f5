// Numbers of kernels/metal/norm.metal, filled by the host and read by name in the kernel. Fields of
// 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct NormSizes {
  int rows, channels;
  int part;   // rows that a group of threads adds up
  int given;  // whether mean and var do not depend on x
  float eps;
};

}  // namespace lattice
