#include "lattice/core/segment_pieces.h"

#include <algorithm>

#include "lattice/core/arrays.h"

namespace lattice {
namespace {

bool has_long(const int32_t* offsets, int64_t n) {
  int32_t longest = 0;
  for (int64_t s = 0; s < n; ++s) longest = std::max(longest, offsets[s + 1] - offsets[s]);
  return longest > kLongRow;
}

mx::array column(const std::vector<int32_t>& values) {
  return new_array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

}  // namespace

std::vector<SegmentPieces> cut_segments(const mx::array& offsets) {
  std::vector<SegmentPieces> cuts;
  const int64_t n = offsets.shape(0) - 1;
  for (const int32_t* from = offsets.data<int32_t>(); has_long(from, n);
       from = cuts.back().starts.data<int32_t>()) {
    std::vector<int32_t> bounds = {from[0]}, owners, starts = {0};
    for (int64_t s = 0; s < n; ++s) {
      for (int64_t e = from[s]; e < from[s + 1]; e += kRowPiece) {
        bounds.push_back(static_cast<int32_t>(std::min<int64_t>(e + kRowPiece, from[s + 1])));
        owners.push_back(static_cast<int32_t>(s));
      }
      starts.push_back(static_cast<int32_t>(owners.size()));
    }
    cuts.push_back({column(bounds), column(owners), column(starts)});
  }
  return cuts;
}

}  // namespace lattice
