// conv and outer as their formulas say, one multiplication at a time, sums in float64. Slow on
// purpose: the last row of the route table, for any shape, and what a reader compares the fast
// kernels with.
#pragma once

#include "lattice/kernels/cpu/base/float_types.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// Element strides of a weight array w[k][c][m].
struct WeightStrides {
  int64_t k, in, out;
};

template <typename T>
struct ReferenceConv {
  const T *x, *w;
  WeightStrides strides;  // of w
  const T* bias;          // null: none
  T* y;
  int64_t c_in, c_out, groups;
};

// y[o, m] = bias[m] + sum_k sum_{(i, o) in list k} sum_c x[i, g * c_in / G + c] w[k, c, m], g the
// group of m.
template <typename T>
void reference_conv(const RelationLists& lists, const ReferenceConv<T>& args);

// u[k, c, m] = sum_{(i, o) in list k} x[i, g * c_in / G + c] g[o, m].
template <typename T>
void reference_outer(const RelationLists& lists, const T* x, int64_t c_in, const T* g,
                     int64_t c_out, T* u, int64_t groups);

}  // namespace lattice::cpu
