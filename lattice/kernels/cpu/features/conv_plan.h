// The shape of a convolution, and the plans that it shares with its weight gradient: tiles of
// output positions, panels of output columns, and the window of input rows that some tiles read.
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/base/float_types.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// The channels of a convolution, and how its values are stored. Whatever describes a convolution,
// its arguments, its weights or the question which kernel runs, contains one of these.
struct ConvShape {
  int64_t c_in = 0, c_out = 0;  // of all groups
  int64_t groups = 1;
  FloatType storage = FloatType::f32;  // of x, weight, bias and y
  int64_t in_group() const { return c_in / groups; }
  int64_t out_group() const { return c_out / groups; }
  // Whether each group has one channel on both sides.
  bool is_depthwise() const { return c_in == groups && c_out == groups && groups > 1; }
  // Of the input gradient.
  ConvShape reversed() const { return {c_out, c_in, groups, storage}; }
  bool operator==(const ConvShape&) const = default;
};

// Throws std::invalid_argument when channels are not positive multiples of groups, or the sizes of
// `bounds` are not those of tile_bounds(lists, bounds.tile).
void check_call(const char* operation, const RelationLists& lists, const TileBounds& bounds,
                const ConvShape& shape);

// With at least `columns` output columns in a group, it is faster to add the rows that share a
// bucket (offset, output row) first from `edges` edges per bucket on.
struct SharedFrom {
  int64_t columns;
  double edges;
};
inline constexpr SharedFrom kConvShared[] = {{64, 1.25}, {32, 2}, {0, 5}};
// Whether it is faster to add input rows that share a bucket before they are multiplied.
bool conv_buckets_pay(const RelationLists& lists, const ConvShape& shape);

// The tile size of the bounds that conv and outer read.
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
std::vector<Panel> cut_panels(const ConvShape& shape, int64_t lanes, int64_t most);

// Input positions [lo, hi).
struct Window {
  int64_t lo = 0, hi = 0;
};

// What the edges [from[k], to[k]) of the lists k in [k0, k1) read; [0, 0) without edges. `from` and
// `to` are rows of tile bounds.
Window input_window(const RelationLists& lists, const int32_t* from, const int32_t* to, int64_t k0,
                    int64_t k1);

}  // namespace lattice::cpu
