// Who attends to whom on a set of coordinates: segments of slots, and which row each slot reads.
//
//   slot p reads row rows[p];  row r takes the result of slot slots[r];
//   segment s is slots offsets[s] .. offsets[s + 1]
//
// Patches of an order (Wu et al., "Point Transformer V3", CVPR 2024) and windows of a lattice (Liu
// et al., "Swin Transformer", ICCV 2021) are both layouts. Concrete, immutable, cached by the
// manager of the coordinates.
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <string_view>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/row_groups.h"
#include "lattice/core/row_map.h"
#include "lattice/kernels/cpu/geometry/layouts.h"

namespace lattice {

using cpu::Curve;
using cpu::Triple;

// "z", "z-trans", "hilbert" or "hilbert-trans"; else std::invalid_argument.
Curve parse_curve(std::string_view name, std::string_view operation);
const char* name(Curve curve);

// What a layout is made by; checked.
struct LayoutSpec {
  enum class Kind { patches, windows };
  Kind kind = Kind::patches;
  Curve curve = Curve::z;
  Triple size{1, 1, 1};  // patches: rows per patch, three times
  Triple shift{0, 0, 0};
  bool shrink = false;  // patches: at most the rows of the smallest cloud
  // size >= 1.
  static LayoutSpec patches(int64_t size, Curve curve, bool shrink, std::string_view operation);
  // size >= 0, where 0 is the whole axis; 0 <= shift < size, 0 where size is 0.
  static LayoutSpec windows(const Triple& size, const Triple& shift, std::string_view operation);
  bool operator==(const LayoutSpec&) const = default;
  auto operator<=>(const LayoutSpec&) const = default;
};

class AttentionLayout {
 public:
  using Ptr = std::shared_ptr<const AttentionLayout>;
  static Ptr make(const CoordinateSet& coords, const LayoutSpec& spec, std::string_view operation);

  const LayoutSpec& spec() const { return spec_; }
  int64_t n_rows() const { return to_rows_->n_out(); }
  int64_t n_slots() const { return to_slots_->n_out(); }
  int64_t n_segments() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  // Rows per patch after `shrink`; of windows the longest segment.
  int64_t length() const { return length_; }
  const mx::array& rows() const { return to_slots_->parts().rows; }
  const mx::array& slots() const { return to_rows_->parts().rows; }
  const mx::array& offsets() const { return offsets_; }
  // (slots, 3) int32: the coordinates of the rows that the slots read, for relative positions.
  const mx::array& positions() const { return positions_; }
  // Rows to slots, and the results of the own slots back to rows.
  const RowMap::Ptr& to_slots() const { return to_slots_; }
  const RowMap::Ptr& to_rows() const { return to_rows_; }
  size_t nbytes() const;
  std::string text() const;

 private:
  AttentionLayout(LayoutSpec spec, mx::array offsets, mx::array positions, RowMap::Ptr to_slots,
                  RowMap::Ptr to_rows, int64_t length);
  LayoutSpec spec_;
  mx::array offsets_, positions_;
  RowMap::Ptr to_slots_, to_rows_;
  int64_t length_;
};

}  // namespace lattice
