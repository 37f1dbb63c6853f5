// The weight gradient of a convolution over the lists of a relation.
//
//   u[k, c, m] = sum over the edges (i, o) of list k of x[i, g * c_in / G + c] * y[o, m]
//   g is the group of column m, G the number of groups
//
// x is (n_in, c_in), y is (n_out, c_out), u is (n_k, c_in / groups, c_out), all row-contiguous and
// of one storage type. The output positions are cut into at most 16 chains; the cut depends on the
// lists and the channels only. A chain sums its edges in list order in float32; the chains are
// added in order, and the result is rounded once. The bits depend neither on the number of threads
// nor on the instruction set, as long as the machine has a fused multiply-add.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/features/conv_plan.h"

namespace lattice::cpu {

struct OuterArgs {
  ConvShape shape;
  const void* x = nullptr;
  const void* y = nullptr;
  void* u = nullptr;
};

// `bounds` are tile bounds of these lists; std::invalid_argument when they are not, or when
// channels are not positive multiples of groups. Extra memory: at most 8 MiB for sums, and for each
// thread at most 8 MiB of copied rows. It is more only when one (c_in / groups, c_out) matrix alone
// is larger.
void outer(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args);

}  // namespace lattice::cpu
