/// @file
/// A sparse matrix between rows of features: it says which rows are reduced into which.
///
///     y[o] = sum, mean or max over the entries e of row o of weights[e] * x[rows[e]]
///
/// The entries of row o are offsets[o] .. offsets[o + 1]. Without offsets row o has the one entry
/// o, and a negative row gives 0. Points of a voxel, voxels around a point and neighbors of a query
/// are such maps. The derivative of a sum is a sum over the transposed map. Immutable.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lattice/core/segment_pieces.h"

namespace lattice {

/// A sparse matrix between rows of features. Immutable.
class LATTICE_API RowMap : public std::enable_shared_from_this<RowMap> {
 public:
  /// How maps are held.
  using Ptr = std::shared_ptr<const RowMap>;
  /// What a map is made of.
  struct Parts {
    int64_t n_in = 0;                      ///< rows that are read
    int64_t n_out = 0;                     ///< rows that are made
    mx::array rows;                        ///< (E,) int32, values below n_in
    std::optional<mx::array> offsets;      ///< (n_out + 1,) int32
    std::optional<mx::array> weights;      ///< (E,) float32, with offsets only
    Reduction reduction = Reduction::sum;  ///< what happens to the entries of a row
  };
  /// Evaluated, contiguous arrays, as the builders of maps make them.
  static Ptr make(Parts parts);

  /// Rows that are read.
  int64_t n_in() const { return parts_.n_in; }
  /// Rows that are made.
  int64_t n_out() const { return parts_.n_out; }
  /// E, entries of all rows together.
  int64_t n_entries() const { return static_cast<int64_t>(parts_.rows.size()); }
  /// How the entries of a row become one value.
  Reduction reduction() const { return parts_.reduction; }
  /// The parts that it was made from.
  const Parts& parts() const { return parts_; }
  /// The values of parts().rows.
  const int32_t* rows() const { return data<int32_t>(parts_.rows); }
  /// The values of parts().offsets, or null.
  const int32_t* offsets() const {
    return parts_.offsets ? parts_.offsets->data<int32_t>() : nullptr;
  }
  /// The values of parts().weights, or null.
  const float* weights() const { return parts_.weights ? data<float>(*parts_.weights) : nullptr; }
  /// @cond internal
  /// Long rows in pieces; with offsets only.
  const std::vector<SegmentPieces>& pieces() const;
  /// @endcond
  /// (E,) int32: the row that each entry belongs to.
  mx::array entry_rows() const;
  /// The same entries with another reduction.
  Ptr with(Reduction reduction) const;
  /// Ends swapped: the adjoint of a sum or mean. A mean gives weights 1 / entries. Built on first
  /// use, kept; transposed twice is this object while it lives.
  Ptr transposed() const;
  /// A description in one line.
  std::string text() const;

 private:
  explicit RowMap(Parts parts) : parts_(std::move(parts)) {}
  template <typename T>
  static const T* data(const mx::array& a) {
    return a.size() ? a.data<T>() : nullptr;
  }
  Ptr make_transposed() const;

  Parts parts_;
  mutable std::once_flag once_, pieces_once_;
  mutable Ptr transposed_;
  mutable std::vector<SegmentPieces> pieces_;
  mutable std::weak_ptr<const RowMap> source_;  ///< of which this is the transposed map
};

}  // namespace lattice
