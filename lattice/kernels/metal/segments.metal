// Reductions over groups of rows, and the way back: one thread per value of the result.
//
//   reduce: out[s, c] = sum, mean, max or min over the entries e of segment s of weights[e]
//   x[rows[e], c] match:  out[s, c] = sum over the entries with a[s, c] == b[rows[e], c] of
//   x[rows[e], c], or their number argmax: out[s, c] = the smallest row that has the maximum or
//   minimum, -1 for an empty segment gather: out[j, c] = x[rows[j], c], fill where rows[j] < 0
//
// The entries of segment s are offsets[s] .. offsets[s + 1]; float32 sums in their order, rounded
// once. Threads of a group lie along the channels, so that a row is read in whole lines. An empty
// segment gives 0; a NaN wins a maximum. `at` is (channel, segment). What a template argument
// switches off is not read: any pointer will do.

namespace lattice {
using namespace metal;

enum Reduction { kSum, kMean, kMax, kMin };

template <int kMode, bool kRows, bool kWeights, typename Out, typename X, typename Offsets,
          typename Rows, typename Weights>
METAL_FUNC void reduce_segments(device Out* out, X x, int channels, Offsets offsets, Rows rows,
                                Weights weights, uint2 at) {
  const int first = offsets[at.y], last = offsets[at.y + 1];
  float value = kMode == kMax ? -INFINITY : kMode == kMin ? INFINITY : 0.0f;
  float total = 0.0f;
  for (int e = first; e < last; ++e) {
    const int row = kRows ? int(rows[e]) : e;
    const float v = float(x[size_t(row) * channels + at.x]);
    if (kMode == kMax) {
      value = v > value || isnan(v) ? v : value;
    } else if (kMode == kMin) {
      value = v < value || isnan(v) ? v : value;
    } else {
      const float w = kWeights ? float(weights[e]) : 1.0f;
      value += w * v;
      total += w;
    }
  }
  if (kMode == kMean) value /= total;
  out[size_t(at.y) * channels + at.x] = static_cast<Out>(first < last ? value : 0.0f);
}

// Row owners[s] of a belongs to segment s; without owners row s.
template <bool kCount, bool kRows, bool kOwners, typename Out, typename A, typename B, typename X,
          typename Offsets, typename Rows, typename Owners>
METAL_FUNC void match_segments(device Out* out, A a, B b, X x, int channels, Offsets offsets,
                               Rows rows, Owners owners, uint2 at) {
  const int owner = kOwners ? int(owners[at.y]) : int(at.y);
  const float wanted = float(a[size_t(owner) * channels + at.x]);
  float value = 0.0f;
  for (int e = offsets[at.y]; e < int(offsets[at.y + 1]); ++e) {
    const size_t from = size_t(kRows ? int(rows[e]) : e) * channels + at.x;
    if (float(b[from]) == wanted) value += kCount ? 1.0f : float(x[from]);
  }
  out[size_t(at.y) * channels + at.x] = static_cast<Out>(value);
}

// kChosen: the row of entry e is rows[e, c], chosen from a piece before.
template <bool kMinimum, bool kRows, bool kChosen, typename X, typename Offsets, typename Rows>
METAL_FUNC void argmax_segments(device int* out, X x, int channels, Offsets offsets, Rows rows,
                                uint2 at) {
  int best = -1;
  float most = 0.0f;
  for (int e = offsets[at.y]; e < int(offsets[at.y + 1]); ++e) {
    const int row = kChosen ? int(rows[size_t(e) * channels + at.x]) : kRows ? int(rows[e]) : e;
    const float x_value = float(x[size_t(row) * channels + at.x]),
                v = kMinimum ? -x_value : x_value;
    const bool same = v == most || (isnan(v) && isnan(most));
    if (best < 0 || v > most || (isnan(v) && !isnan(most)) || (same && row < best)) {
      most = v;
      best = row;
    }
  }
  out[size_t(at.y) * channels + at.x] = best;
}

template <typename Out, typename X, typename Rows>
METAL_FUNC void gather_rows(device Out* out, X x, int channels, Rows rows, float fill, uint2 at) {
  const int row = rows[at.y];
  const size_t to = size_t(at.y) * channels + at.x;
  if (row < 0)
    out[to] = static_cast<Out>(fill);
  else
    out[to] = x[size_t(row) * channels + at.x];
}

}  // namespace lattice
