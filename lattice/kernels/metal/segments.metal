// Reductions over groups of rows, and the gather that leads back. One thread computes one value of
// the result, or four neighboring channels where the number of channels is a multiple of 4.
//
//   reduce: out[s, c] = sum, mean, max or min over the entries e of segment s of
//           weights[e] x[rows[e], c]
//   match:  out[s, c] = sum over the entries with a[s, c] == b[rows[e], c] of x[rows[e], c], or
//           their number
//   argmax: out[s, c] = the smallest row that has the maximum or minimum, -1 for an empty segment
//   gather: out[j, c] = x[rows[j], c], fill where rows[j] < 0
//
// The entries of segment s are offsets[s] .. offsets[s + 1]; float32 sums in their order, rounded
// once. Threads of a group lie along the channels, so a row is read in whole lines. An empty
// segment gives 0; a NaN wins a maximum. `at` is (kWide channels, segment). Arrays that a template
// argument switches off are not read, so any pointer may stand for them.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/metal/vectors.metal"
#include "lattice/kernels/portable/segment_sizes.h"

namespace lattice {
using namespace metal;

enum Reduction { kSum, kMean, kMax, kMin };

// The entries of each segment: where they begin, the row of each of them, its weight or, of match,
// the owner of each segment.
template <typename Offsets, typename Rows, typename Extra>
struct Entries {
  Offsets offsets;
  Rows rows;
  Extra extra;
};

template <typename Offsets, typename Rows, typename Extra>
METAL_FUNC Entries<Offsets, Rows, Extra> entries(Offsets offsets, Rows rows, Extra extra) {
  return {offsets, rows, extra};
}

// Where the values of a thread begin in row `row`.
template <int kWide>
METAL_FUNC size_t place(int row, int channels, uint2 at) {
  return size_t(row) * size_t(channels) + size_t(at.x) * size_t(kWide);
}

template <int kWide, int kMode, bool kRows, bool kWeights, typename Out, typename X, typename From>
METAL_FUNC void reduce_segments(device Out* out, X x, From from, SegmentSizes sizes, uint2 at) {
  const int channels = sizes.channels, first = from.offsets[at.y], last = from.offsets[at.y + 1];
  float value[kWide];
#pragma clang loop unroll(full)
  for (int j = 0; j < kWide; ++j)
    value[j] = kMode == kMax ? -INFINITY : kMode == kMin ? INFINITY : 0.0f;
  float total = 0.0f;
  for (int e = first; e < last; ++e) {
    const int row = kRows ? int(from.rows[e]) : e;
    const auto found = values_at<kWide>(x + place<kWide>(row, channels, at));
    const float w = kWeights ? float(from.extra[e]) : 1.0f;
    total += w;
#pragma clang loop unroll(full)
    for (int j = 0; j < kWide; ++j) {
      const float v = float(found.v[j]);
      if (kMode == kMax)
        value[j] = v > value[j] || isnan(v) ? v : value[j];
      else if (kMode == kMin)
        value[j] = v < value[j] || isnan(v) ? v : value[j];
      else
        value[j] += w * v;
    }
  }
  Values<Out, kWide> result;
#pragma clang loop unroll(full)
  for (int j = 0; j < kWide; ++j) {
    const float v = kMode == kMean ? value[j] / total : value[j];
    result.v[j] = static_cast<Out>(first < last ? v : 0.0f);
  }
  put_values(out + place<kWide>(int(at.y), channels, at), result);
}

// Row `owner` of a belongs to a segment; without owners it has the segment's number.
template <int kWide, bool kCount, bool kRows, bool kOwners, typename Out, typename A, typename B,
          typename X, typename From>
METAL_FUNC void match_segments(device Out* out, A a, B b, X x, From from, SegmentSizes sizes,
                               uint2 at) {
  const int channels = sizes.channels, owner = kOwners ? int(from.extra[at.y]) : int(at.y);
  const auto wanted = values_at<kWide>(a + place<kWide>(owner, channels, at));
  float value[kWide] = {};
  for (int e = from.offsets[at.y]; e < int(from.offsets[at.y + 1]); ++e) {
    const size_t row = place<kWide>(kRows ? int(from.rows[e]) : e, channels, at);
    const auto found = values_at<kWide>(b + row);
    const auto added = values_at<kWide>(x + row);
#pragma clang loop unroll(full)
    for (int j = 0; j < kWide; ++j)
      if (float(found.v[j]) == float(wanted.v[j])) value[j] += kCount ? 1.0f : float(added.v[j]);
  }
  Values<Out, kWide> result;
#pragma clang loop unroll(full)
  for (int j = 0; j < kWide; ++j) result.v[j] = static_cast<Out>(value[j]);
  put_values(out + place<kWide>(int(at.y), channels, at), result);
}

// kChosen: the row of entry e is rows[e, c], chosen from a piece before; then kWide is 1.
template <int kWide, bool kMinimum, bool kRows, bool kChosen, typename X, typename From>
METAL_FUNC void argmax_segments(device int* out, X x, From from, SegmentSizes sizes, uint2 at) {
  const int channels = sizes.channels;
  Values<int, kWide> best;
  float most[kWide] = {};
#pragma clang loop unroll(full)
  for (int j = 0; j < kWide; ++j) best.v[j] = -1;
  for (int e = from.offsets[at.y]; e < int(from.offsets[at.y + 1]); ++e) {
    const int row = kChosen ? int(from.rows[place<1>(e, channels, at)])
                    : kRows ? int(from.rows[e])
                            : e;
    const auto found = values_at<kWide>(x + place<kWide>(row, channels, at));
#pragma clang loop unroll(full)
    for (int j = 0; j < kWide; ++j) {
      const float v = kMinimum ? -float(found.v[j]) : float(found.v[j]);
      const bool same = v == most[j] || (isnan(v) && isnan(most[j]));
      if (best.v[j] < 0 || v > most[j] || (isnan(v) && !isnan(most[j])) ||
          (same && row < best.v[j])) {
        most[j] = v;
        best.v[j] = row;
      }
    }
  }
  put_values(out + place<kWide>(int(at.y), channels, at), best);
}

template <int kWide, typename Out, typename X, typename Rows>
METAL_FUNC void gather_rows(device Out* out, X x, Rows rows, SegmentSizes sizes, uint2 at) {
  const int row = rows[at.y], channels = sizes.channels;
  Values<Out, kWide> values;
  if (row < 0) {
#pragma clang loop unroll(full)
    for (int j = 0; j < kWide; ++j) values.v[j] = static_cast<Out>(sizes.fill);
  } else {
    values = values_at<kWide>(x + place<kWide>(row, channels, at));
  }
  put_values(out + place<kWide>(int(at.y), channels, at), values);
}

}  // namespace lattice
