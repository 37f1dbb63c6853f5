// Numbers of kernels/metal/{conv,outer}.metal, filled by the host and read by name in the kernel.
// Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct ConvSizes {
  int n_out, n_k, groups;
  int in, out;                       // channels of a group
  int stride_k, stride_g, stride_c;  // of a dense weight: an offset, a group, an input channel
  int group_size;                    // of a packed weight: codes that share a scale
  float eps;                         // of a norm
};

struct OuterSizes {
  int groups;
  int in, out;                       // channels of a group
  int stride_k, stride_g, stride_c;  // of u: a place, a group, an input channel
};

}  // namespace lattice
