// Sparse convolution of bfloat16 rows with the products of AVX-512 BF16.
//
// What conv (conv.h) computes, with sums in float32 that vdpbf16ps makes from two input channels at
// a time: it takes denormal numbers for 0 and rounds in its own way. So the last bits differ from
// those of other machines; they do not depend on the number of threads.
#pragma once

#include "lattice/kernels/cpu/features/conv.h"

namespace lattice::cpu {

// Whether this machine and this build have the instruction, and LATTICE_SIMD allows it.
bool has_bf16_products();

// x, bias, residual and y are bfloat16; one group. The arguments are those of conv, without
// add_shared_first and panels. Throws std::invalid_argument on other arguments.
void bf16_conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args);

}  // namespace lattice::cpu
