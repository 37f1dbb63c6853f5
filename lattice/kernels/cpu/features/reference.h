// conv and outer exactly as their formulas, one multiplication at a time, with float64 sums. They
// are simple rather than fast: the last row of the route table takes any shape, and readers can
// compare the fast kernels with this code.
#pragma once

#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/outer.h"

namespace lattice::cpu {

// y[o, m] = bias[m] + sum_k sum_{(i, o) in list k} sum_c x[i, g * c_in / G + c] w[k, c, m], g the
// group of m. Reads x, bias and y of `args`, and the weight where it lies.
void reference_conv(const RelationLists& lists, const DenseWeight& w, const ConvArgs& args);

// u[k, c, m] = sum_{(i, o) in list k} x[i, g * c_in / G + c] y[o, m].
void reference_outer(const RelationLists& lists, const OuterArgs& args);

}  // namespace lattice::cpu
