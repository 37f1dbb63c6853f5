// Numbers of kernels/metal/{coords,relations,neighbors}.metal, filled by the host and read by name
// in the kernel. Fields of 32 bits only; legal in C++20, in MSL and in CUDA.
#pragma once

namespace lattice {

struct TableSizes {
  int n_slots;  // a power of two, more than rows
  int n_rows;
};

struct RelateSizes {
  int n_slots, n_k;
  int stride[3], padding[3];
};

struct SearchSizes {
  int n_sources, n_queries;
  int width;    // neighbors that a query keeps
  float reach;  // largest squared distance
};

}  // namespace lattice
