/// @file
/// A set of coordinate rows (batch, x, y, z) with its sorted index, immutable and cheap to copy;
/// also the key by which a manager names a set.
#pragma once

#include <mlx/array.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "lattice/core/names.h"

namespace lattice {

/// Coordinates (N, 4) as (batch, x, y, z), checked, with an index that is built on first use.
class LATTICE_API CoordinateSet {
 public:
  /// Shape (N, 4), int32 or int64, batch >= 0, N < 2^31; evaluated here. Throws
  /// std::invalid_argument otherwise. `what` names the argument in messages.
  CoordinateSet(mx::array coords, std::string_view operation, std::string_view what = "coords");

  /// The array that was given, as it was given.
  const mx::array& array() const;
  /// The same array as an object for Python, where arrays can be written in place. Calls return one
  /// object until somebody has written to it; then they return a new object with the original
  /// values.
  std::shared_ptr<mx::array> python_array() const;
  /// N.
  int64_t rows() const;
  /// Whether no coordinate occurs twice.
  bool is_unique() const;
  /// int32 or int64.
  mx::Dtype dtype() const { return array().dtype(); }
  /// @cond internal
  cpu::CoordSpan span() const;
  const cpu::Box& box() const;
  /// Rows sorted by coordinate; built on first use, once, from any thread.
  const std::shared_ptr<const cpu::CoordIndex>& index() const;
  /// The index of a set without duplicates; otherwise std::invalid_argument names the coordinate
  /// and two rows.
  const std::shared_ptr<const cpu::CoordIndex>& unique_index(std::string_view operation) const;
  /// @endcond
  /// Two values are the same set if both are copies of one constructed value.
  bool same_as(const CoordinateSet& other) const { return state_ == other.state_; }
  /// Bytes of the coordinates and of the index, if it exists.
  size_t nbytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Names a coordinate set. Equal keys name the same set; equal coordinates may have several keys.
struct CoordinateMapKey {
  int64_t id = 0;          ///< counts the sets of a manager
  Triple stride{1, 1, 1};  ///< steps of the finest lattice between two rows
  int64_t manager_id = 0;  ///< CoordinateManager::id
  /// Whether they name the same set.
  bool operator==(const CoordinateMapKey&) const = default;
  /// The order of a map: field by field.
  auto operator<=>(const CoordinateMapKey&) const = default;
};

/// @cond internal
/// Throws std::invalid_argument when the dtypes differ.
void check_same_dtype(const CoordinateSet& a, const CoordinateSet& b, std::string_view operation,
                      std::string_view names);
/// @endcond

}  // namespace lattice
