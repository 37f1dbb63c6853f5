// Reductions over groups of rows, and the gather that leads back.
//
//   reduce: out[s, :] = sum, mean, max or min over the entries e of segment s of w[e] x[rows[e], :]
//   gather: out[j, :] = x[rows[j], :]
//
// The entries of segment s are offsets[s] .. offsets[s + 1], as in a CSR matrix: a sorted index
// needs no rows, an unsorted one lists them. An empty segment gives 0 in every mode. Mean divides
// by the sum of the weights; without weights that is the number of entries. Max and min take no
// weights, and a NaN wins.
//
// Order of summation: entries in their order, in float32. A segment of more than kLongSegment
// entries is summed in pieces of kSegmentPiece, whose sums are added in order in float64. The
// result is rounded once. No size depends on the number of threads, so any number of threads gives
// the same bits. All threads share one huge segment. Every function may be called from a task.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/choices.h"
#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice::cpu {

inline constexpr int64_t kLongSegment = 2048;
inline constexpr int64_t kSegmentPiece = 512;

struct Segments {
  int64_t n = 0;
  const int32_t* offsets = nullptr;   // n + 1, ascending; the first need not be 0
  const int32_t* rows = nullptr;      // of entry e; null: entry e is row e
  const int32_t* out_rows = nullptr;  // where segment s is written; null: row s
  const float* weights = nullptr;     // of entry e; null: 1
};

// Rows that are read: x is (rows, channels), row-contiguous.
struct RowArray {
  FloatType storage = FloatType::f32;
  const void* x = nullptr;
  int64_t rows = 0;
  int64_t channels = 0;
};

// out has the storage and channels of x.
void reduce_segments(const Segments& segments, const RowArray& x, Reduction reduction, void* out);

// out[s, c] = sum over the entries e with a[s, c] == b[rows[e], c] of x[rows[e], c]. The derivative
// of max uses it. a has a row for each row of out, b is like x. Weights are not read.
void max_match_segments(const Segments& segments, const void* a, const void* b, const RowArray& x,
                        void* out);

// out[s, c] = g[s, c] / the number of entries with a[s, c] == b[rows[e], c]. It is 0 where there is
// no such entry. g and a have a row for each row of out.
void tie_share_segments(const Segments& segments, const void* a, const RowArray& b, const void* g,
                        void* out);

// out[s, c] = the smallest row that has the maximum (kind min: the minimum), -1 for an empty
// segment.
void argmax_segments(const Segments& segments, const RowArray& x, int32_t* out,
                     Reduction kind = Reduction::max);

// out[j, :] = x[rows[j], :] for j < n, `fill` where rows[j] < 0.
void gather_rows(const RowArray& x, const int32_t* rows, int64_t n, float fill, void* out);

}  // namespace lattice::cpu
