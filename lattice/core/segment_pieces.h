/// @file
/// Long segments cut into pieces, for kernels with one thread per segment and channel.
///
/// Piece p is entries bounds[p] .. bounds[p + 1] of segment owners[p]; segment s has the pieces
/// starts[s] .. starts[s + 1]. Sums of pieces are segments again, whose offsets are `starts`: these
/// are cut too while one is long. Lengths depend on the data only, so that sums have the same bits.
#pragma once

#include <vector>

#include "lattice/core/names.h"

namespace lattice {

inline constexpr int kLongRow = 256;   ///< entries of the longest segment that stays whole
inline constexpr int kRowPiece = 128;  ///< entries of a piece

/// One cut; the names are those of the text above.
struct SegmentPieces {
  mx::array bounds;  ///< (pieces + 1,) int32
  mx::array owners;  ///< (pieces,) int32
  mx::array starts;  ///< (segments + 1,) int32
};

/// @cond internal
/// One cut after the other; none: no segment is long. offsets (n + 1,) int32, evaluated.
std::vector<SegmentPieces> cut_segments(const mx::array& offsets);
/// @endcond

}  // namespace lattice
