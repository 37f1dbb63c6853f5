// Exact pooling of bytes over the lists of a relation.
//
//   max   y[o, c] = the largest byte over the edges (i, o) of x[i, c], 0 without edges
//   sum   y[o, c] = convert(sum of x[i, c]), scale as given
//   mean  the same with scale / float(edges of o)
//
// Sums are int32, so the caller makes sure that no row has 2^23 edges or more. convert is that of
// int_conv, to u8, f32 or int16 of 12 bits.
#pragma once

#include "lattice/kernels/cpu/base/choices.h"
#include "lattice/kernels/cpu/features/int_conv.h"

namespace lattice::cpu {

inline constexpr int64_t kIntPoolMost = int64_t{1} << 23;  // edges of a row

// x is (n_in, c), y is (n_out, c). `bounds` are tile_bounds of these lists.
void int_pool(const RelationLists& lists, const TileBounds& bounds, const uint8_t* x, int64_t c,
              Reduction mode, float scale, IntType out, void* y);

}  // namespace lattice::cpu
