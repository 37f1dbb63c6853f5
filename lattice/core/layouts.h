/// @file
/// Orders and blocks of a set of coordinates: layouts for attention, and pooling along a curve.
///
/// A layout says who attends to whom: segments of slots, and which row each slot reads.
///
///     slot p reads row rows[p];  row r takes the result of slot slots[r];
///     segment s is slots offsets[s] .. offsets[s + 1]
///
/// Patches of an order (Wu et al., "Point Transformer V3", CVPR 2024) and windows of a lattice (Liu
/// et al., "Swin Transformer", ICCV 2021) are both layouts. Concrete, immutable, cached by the
/// manager of the coordinates.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/row_map.h"

namespace lattice {
namespace cpu {
struct CurveFrame;
}

class RowGroups;

/// "z", "z-trans", "hilbert" or "hilbert-trans"; else std::invalid_argument.
LATTICE_API Curve parse_curve(std::string_view name, std::string_view operation);
/// The name that parse_curve reads.
LATTICE_API const char* name(Curve curve);

/// @cond internal
/// The frame of a set with `depth` bits per axis, -1 for as many as the coordinates need; else
/// std::invalid_argument.
cpu::CurveFrame frame_of(const CoordinateSet& set, int64_t depth, std::string_view operation);
/// @endcond

/// The checked parameters of a layout.
struct LATTICE_API LayoutSpec {
  /// Segments along a curve, or boxes of the lattice.
  enum class Kind { patches, windows };
  Kind kind = Kind::patches;  ///< patches or windows
  Curve curve = Curve::z;     ///< patches: the curve that orders the rows
  Triple size{1, 1, 1};       ///< patches: rows per patch, three times
  Triple shift{0, 0, 0};      ///< windows: how far their borders are moved
  bool shrink = false;        ///< patches: at most the rows of the smallest cloud
  int64_t depth = -1;         ///< patches: bits per axis of the curve; -1: those it needs
  /// size >= 1.
  static LayoutSpec patches(int64_t size, Curve curve, bool shrink, std::string_view operation);
  /// size >= 0, where 0 is the whole axis; 0 <= shift < size, 0 where size is 0.
  static LayoutSpec windows(const Triple& size, const Triple& shift, std::string_view operation);
  /// Whether all fields are equal.
  bool operator==(const LayoutSpec&) const = default;
  /// The order of a map: field by field.
  auto operator<=>(const LayoutSpec&) const = default;
};

/// Which rows attend to which. Concrete and immutable.
class LATTICE_API AttentionLayout {
 public:
  /// How layouts are held.
  using Ptr = std::shared_ptr<const AttentionLayout>;
  /// The layout of coordinates. Throws std::overflow_error where codes or windows leave their type;
  /// Messages begin with `operation`.
  static Ptr make(const CoordinateSet& coords, const LayoutSpec& spec, std::string_view operation);

  /// The parameters that it was made from.
  const LayoutSpec& spec() const { return spec_; }
  /// Rows of the tensor.
  int64_t n_rows() const { return to_rows_->n_out(); }
  /// Slots, at least as many as rows.
  int64_t n_slots() const { return to_slots_->n_out(); }
  /// Patches or windows that hold a row.
  int64_t n_segments() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  /// For patches the rows per patch after `shrink`, for windows the length of the longest segment.
  int64_t length() const { return length_; }
  /// (slots,) int32: the row that each slot reads.
  const mx::array& rows() const { return to_slots_->parts().rows; }
  /// (rows,) int32: the slot whose result each row takes.
  const mx::array& slots() const { return to_rows_->parts().rows; }
  /// (segments + 1,) int32: where each segment begins.
  const mx::array& offsets() const { return offsets_; }
  /// (slots, 3) int32: the coordinates of the rows that the slots read, for relative positions.
  const mx::array& positions() const { return positions_; }
  /// The map from rows to slots.
  const RowMap::Ptr& to_slots() const { return to_slots_; }
  /// The map that gives each row the result of its own slot.
  const RowMap::Ptr& to_rows() const { return to_rows_; }
  /// Bytes of all arrays.
  size_t nbytes() const;
  /// A description in one line.
  std::string text() const;

 private:
  AttentionLayout(LayoutSpec spec, mx::array offsets, mx::array positions, RowMap::Ptr to_slots,
                  RowMap::Ptr to_rows, int64_t length);
  LayoutSpec spec_;
  mx::array offsets_, positions_;
  RowMap::Ptr to_slots_, to_rows_;
  int64_t length_;
};

/// Blocks of `stride` cells per axis that become one row each.
///
///     fine row r lies in coarse row cluster[r], whose coordinate is floor(c[r] / stride)
///
/// The coarse rows ascend along a curve, so that rows that are near in space are near in memory; or
/// by batch, x, y and z. Blocks of a curve have a stride of 2^m. Concrete and immutable.
struct LATTICE_API GridPooling {
  using Ptr = std::shared_ptr<const GridPooling>;  ///< how poolings are held
  CoordinateMapKey in;                             ///< the fine coordinates
  CoordinateMapKey out;                            ///< the coarse coordinates
  std::shared_ptr<const RowGroups> clusters;       ///< the block of each fine row
  int64_t nbytes() const;                          ///< bytes of the blocks
};

/// @cond internal
/// The checked parameters of a pooling.
struct PoolingSpec {
  int64_t stride = 2;          ///< 1 to 2^10
  std::optional<Curve> curve;  ///< without: rows by batch, x, y and z
  int64_t depth = -1;          ///< bits per axis of the curve; -1: those of the coordinates
  /// Along a curve stride is a power of two; else std::invalid_argument.
  static PoolingSpec make(int64_t stride, std::optional<Curve> curve, int64_t depth,
                          std::string_view operation);
  auto operator<=>(const PoolingSpec&) const = default;
};

/// The blocks and their coordinates.
struct PooledCoords {
  CoordinateSet coords;
  std::shared_ptr<const RowGroups> clusters;
  int64_t stride;  ///< the requested stride, or 1 where it exceeds the curve
};
PooledCoords pool_coords(const CoordinateSet& fine, const PoolingSpec& spec,
                         std::string_view operation);
/// @endcond

}  // namespace lattice
