// Numbers of kernels/metal/finite.metal, filled by the host and read by name in the kernel. Fields
// of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct FiniteSizes {
  int arrays, strips;  // of each array: simdgroups that read it
  int size[24];        // elements of each array
};

}  // namespace lattice
