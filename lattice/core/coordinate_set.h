// A set of coordinate rows (batch, x, y, z) with its sorted index. Immutable and cheap to copy.
#pragma once

#include <mlx/array.h>

#include <memory>
#include <string_view>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice {

class CoordinateSet {
 public:
  // Shape (N, 4), int32 or int64, batch >= 0, N < 2^31; evaluated here. Throws
  // std::invalid_argument otherwise. `what` names the argument in messages.
  CoordinateSet(mx::array coords, std::string_view operation, std::string_view what = "coords");

  // The array that was given, as it was given.
  const mx::array& array() const;
  // The same as an object for Python, which can write to arrays in place. It is one object until
  // somebody wrote to the object; then it is another with the true values.
  std::shared_ptr<mx::array> python_array() const;
  int64_t rows() const;
  mx::Dtype dtype() const { return array().dtype(); }
  cpu::CoordSpan span() const;
  const cpu::Box& box() const;
  // Rows sorted by coordinate; built on first use, once, from any thread.
  const std::shared_ptr<const cpu::CoordIndex>& index() const;
  // The index of a set without duplicates; otherwise std::invalid_argument names the coordinate and
  // two rows.
  const std::shared_ptr<const cpu::CoordIndex>& unique_index(std::string_view operation) const;
  // Two values are one set when they come from one construction.
  bool same_as(const CoordinateSet& other) const { return state_ == other.state_; }
  // Bytes of the coordinates and of the index, if it exists.
  size_t nbytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Throws std::invalid_argument when the dtypes differ.
void check_same_dtype(const CoordinateSet& a, const CoordinateSet& b, std::string_view operation,
                      std::string_view names);

}  // namespace lattice
