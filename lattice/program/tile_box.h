/// @file
/// A part of a cloud, as tiles cut it.
#pragma once

#include "lattice/core/names.h"

namespace lattice {

/// low <= c < high on each axis, in steps of the input.
struct TileBox {
  Triple low{0, 0, 0};   ///< the low corner
  Triple high{0, 0, 0};  ///< one behind the high corner
  /// Whether both corners are equal.
  bool operator==(const TileBox&) const = default;
};

}  // namespace lattice
