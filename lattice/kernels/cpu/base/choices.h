/// @file
/// Small types and enumerations that the kernels and the users of the library share.
#pragma once

#include <array>
#include <cstdint>

namespace lattice::cpu {

/// One number for each axis: x, y, z.
using Triple = std::array<int64_t, 3>;

/// A box of cells: low <= c < high on each axis.
struct Bounds {
  Triple low{};   ///< the first cell
  Triple high{};  ///< behind the last cell
  /// Whether both corners are equal.
  bool operator==(const Bounds&) const = default;
  /// The order of a map: field by field.
  auto operator<=>(const Bounds&) const = default;
};

/// The order of the rows of a reached support: sorted by (batch, x, y, z), or in the order of first
/// appearance in a loop over the taps of the kernel with an inner loop over the input rows, which
/// is the order of spconv.
enum class RowOrder { sorted, taps };

/// How the rows of a group become one value.
enum class Reduction { sum, mean, max, min };

/// How two sets of coordinates are joined by value.
enum class Join { inner, left, right, outer };

/// A curve through the cells of a lattice; the -trans forms swap x and y first.
enum class Curve { z, z_trans, hilbert, hilbert_trans };

/// How many rows of a relation have no edge.
struct Coverage {
  int64_t unused_inputs = 0;  ///< input rows that reach no output
  int64_t empty_outputs = 0;  ///< output rows without an edge
};

}  // namespace lattice::cpu
