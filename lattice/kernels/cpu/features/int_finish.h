// Turns the sums of int_conv into the result: residual, scale, clamp, rounding, table.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/features/int_list.h"

namespace lattice::cpu {

// Rows [0, n) of the sums of one panel; row p belongs to output row order[first + p].
struct IntFinishCall {
  const int32_t* sums;
  const float* scale;     // of the columns of the panel
  const int32_t* factor;  // of the residual, or null
  int64_t n, columns;     // columns of the panel that exist
  int64_t pitch, first;   // pitch: columns of y
  const int32_t* order;   // position -> row, or null
  const void* residual;   // at the first column of the panel, or null
  IntType residual_type, out;
  bool relu;
  const uint8_t* table;
  void* y;  // at the first column of the panel
};
void int_finish(const IntFinishCall& call);

}  // namespace lattice::cpu
