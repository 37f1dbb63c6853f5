// The position of a thread, under the names that Metal gives it. Groups lie along CUDA's x, one
// thread wide, and the threads of a group along y (graph/gpu_call.cpp). `launch` holds the threads
// of the grid along three axes, then those of a group.
#pragma once

#include "lattice/kernels/cuda/types.cuh"

namespace lattice::grid {

// Three numbers, or the first two of them as `.xy`.
struct Triple : metal::vec<uint, 3> {
  metal::vec<uint, 2> xy;
  METAL_FUNC Triple(uint a, uint b, uint c) : metal::vec<uint, 3>(a, b, c), xy(a, b) {}
};

// Divides `i` into places along three axes. Axes of one element cost nothing.
METAL_FUNC metal::vec<uint, 3> split(uint i, uint x, uint y) {
  const uint over = x == 1 ? i : i / x, above = y == 1 ? over : over / y;
  return {x == 1 ? 0 : i - over * x, y == 1 ? 0 : over - above * y, above};
}

struct Place {
  Triple grid, size, groups, group, within, at;
  bool inside;
  METAL_FUNC explicit Place(const int* n)
      : grid(uint(n[0]), uint(n[1]), uint(n[2])),
        size(uint(n[3]), uint(n[4]), uint(n[5])),
        groups((grid.x + size.x - 1) / size.x, (grid.y + size.y - 1) / size.y,
               (grid.z + size.z - 1) / size.z),
        group(0, 0, 0),
        within(0, 0, 0),
        at(0, 0, 0) {
    const metal::vec<uint, 3> g = split(blockIdx.x, groups.x, groups.y),
                              t = split(threadIdx.y, size.x, size.y);
    group = Triple(g.x, g.y, g.z);
    within = Triple(t.x, t.y, t.z);
    at = Triple(g.x * size.x + t.x, g.y * size.y + t.y, g.z * size.z + t.z);
    inside = at.x < grid.x && at.y < grid.y && at.z < grid.z;
  }
};

}  // namespace lattice::grid

#define LATTICE_PLACE(launch)                                                                      \
  const lattice::grid::Place lattice_place(launch);                                                \
  [[maybe_unused]] const lattice::grid::Triple thread_position_in_grid = lattice_place.at;         \
  [[maybe_unused]] const lattice::grid::Triple threadgroup_position_in_grid = lattice_place.group; \
  [[maybe_unused]] const lattice::grid::Triple thread_position_in_threadgroup =                    \
      lattice_place.within;                                                                        \
  [[maybe_unused]] const lattice::grid::Triple threads_per_threadgroup = lattice_place.size;       \
  [[maybe_unused]] const lattice::grid::Triple threads_per_grid = lattice_place.grid;              \
  [[maybe_unused]] const lattice::grid::Triple threadgroups_per_grid = lattice_place.groups;       \
  [[maybe_unused]] const uint thread_index_in_threadgroup = threadIdx.y;                           \
  [[maybe_unused]] const uint thread_index_in_simdgroup = threadIdx.y % 32;                        \
  [[maybe_unused]] const uint simdgroup_index_in_threadgroup = threadIdx.y / 32;
