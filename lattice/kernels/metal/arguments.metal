// The arguments that the body of a kernel passes to an entry function. Not a topic of its own.
#pragma once

namespace lattice {
using namespace metal;

// A struct of kernels/portable from the words that routes/kernel_call.h wrote. They are at least 8,
// so that MLX leaves them in `device` memory.
template <typename Fields>
METAL_FUNC Fields read_fields(const device int* words) {
  return *(const device Fields*)words;
}

// The position of a thread: its group in the grid, its number in the group, its simdgroup and its
// lane.
struct ThreadPlace {
  uint3 group;
  uint id, simdgroup, lane;
};

}  // namespace lattice
