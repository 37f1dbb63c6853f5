// Numbers of kernels/metal/segments.metal, filled by the host and read by name in the kernel.
// Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct SegmentSizes {
  int channels;
  float fill;  // of gather: what a row without a source gets
};

}  // namespace lattice
