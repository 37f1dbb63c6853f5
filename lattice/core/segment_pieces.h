/// @file
/// Long segments cut into pieces, for kernels with one thread per segment and channel.
///
/// Piece p is entries bounds[p] .. bounds[p + 1] of segment owners[p]; segment s has the pieces
/// starts[s] .. starts[s + 1]. The sums of the pieces form segments again, with the offsets
/// `starts`, and these are cut too as long as one of them is long. The lengths depend on the data
/// only, so sums have the same bits each time.
#pragma once

#include <vector>

#include "lattice/core/names.h"

namespace lattice {

inline constexpr int kLongRow = 256;   ///< entries of the longest segment that stays whole
inline constexpr int kRowPiece = 128;  ///< entries of a piece

/// One cut; the text above explains the names.
struct SegmentPieces {
  mx::array bounds;  ///< (pieces + 1,) int32
  mx::array owners;  ///< (pieces,) int32
  mx::array starts;  ///< (segments + 1,) int32
};

/// @cond internal
/// The cuts one after the other; empty if no segment is long. `offsets` is (n + 1,) int32,
/// evaluated.
std::vector<SegmentPieces> cut_segments(const mx::array& offsets);
/// @endcond

}  // namespace lattice
