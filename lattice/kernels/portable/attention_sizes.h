// Numbers of kernels/metal/attention.metal, filled by the host and read by name in the kernel.
// Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct AttentionSizes {
  int heads, key_heads, head_size;
  int axes, bound[3], entries;  // of a table by position: axes, largest distances, values per head
  float scale;
};

}  // namespace lattice
