// Products in which each edge, or nearly each edge, has its own matrix. Matrices are read or
// written once, as a stream.
//
//   apply_matrices: y[o, g, m]    = sum over the edges (i, o, k) of sum_c x[i, g, c] a[k, g, c, m]
//   outer_matrices: u[k, g, c, m] = sum over the edges (i, o, k) of x[i, g, c] y[o, g, m]
//
// The same formulas as conv and outer. Conv and outer group edges by k and keep a matrix in the
// cache for all of its edges. With about one edge per matrix there is nothing to keep, and memory
// decides. Here edges are grouped by the end that is written. Sums are float32 in the order of the
// group, rounded once, so the bits do not depend on threads.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/features/conv_plan.h"

namespace lattice::cpu {

// Edges of group r are order[offsets[r]] .. order[offsets[r + 1]]: output rows for apply, matrices
// for outer.
struct PerEdgeEdges {
  int64_t n_groups = 0;
  const int32_t* offsets = nullptr;
  const int32_t* order = nullptr;
  const int32_t* in = nullptr;   // of each edge
  const int32_t* out = nullptr;  // of each edge; apply does not read it
  const int32_t* k = nullptr;    // of each edge; outer does not read it
};

// Element (k, g, c, m) of the matrices is at k * stride_k + g * stride_g + c * stride_c + m *
// stride_m; one of the last two is 1.
struct Matrices {
  const void* data = nullptr;
  int64_t stride_k = 0, stride_g = 0, stride_c = 0, stride_m = 1;
};

// x is (n_in, c_in), y is (n_groups, c_out), row-contiguous.
void apply_matrices(const PerEdgeEdges& edges, const ConvShape& shape, const void* x,
                    const Matrices& a, void* y);
// y is (n_out, c_out), u is (n_groups, groups, c_in / groups, c_out / groups).
void outer_matrices(const PerEdgeEdges& edges, const ConvShape& shape, const void* x, const void* y,
                    void* u);

}  // namespace lattice::cpu
