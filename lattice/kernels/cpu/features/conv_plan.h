// What a convolution and its weight gradient plan in the same way: tiles of output positions, and
// panels of output columns. Also the window of input rows that some tiles read.
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// One channel on both sides of each group.
bool is_depthwise(int64_t c_in, int64_t c_out, int64_t groups);

// Whether it is faster to add input rows that share a bucket (offset, output row) before they are
// multiplied.
bool conv_buckets_pay(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups);

// Tile for the bounds that conv and outer read.
int64_t conv_tile(const RelationLists& lists);

// Output columns that are computed together.
struct Panel {
  int64_t column;
  int64_t columns;
  int64_t vectors;    // that hold them
  int64_t x_column;   // first input column that they read
  int64_t begin = 0;  // where its weights, or its sums, of one offset begin
};

// The output columns of each group in panels of nearly equal size, of at most `most` vectors of
// `lanes` columns. Depthwise, the groups lie side by side in a panel. Panels all begin at 0.
std::vector<Panel> cut_panels(int64_t c_in, int64_t c_out, int64_t groups, int64_t lanes,
                              int64_t most);

// Input positions [lo, hi).
struct Window {
  int64_t lo = 0, hi = 0;
};

// What the edges [from[k], to[k]) of the lists k in [k0, k1) read; [0, 0) without edges. `from` and
// `to` are rows of tile bounds.
Window input_window(const RelationLists& lists, const int32_t* from, const int32_t* to, int64_t k0,
                    int64_t k1);

}  // namespace lattice::cpu
