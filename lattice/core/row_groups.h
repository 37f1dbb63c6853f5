// The assignment of rows to groups, such as batches, duplicates, joins and voxels.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "lattice/core/arrays.h"
#include "lattice/core/segment_pieces.h"
#include "lattice/kernels/cpu/features/segments.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice {

// Which group each row belongs to. Concrete, immutable, shared by the nodes that use it.
class RowGroups {
 public:
  using Ptr = std::shared_ptr<const RowGroups>;
  // group_of[r] in [0, n_groups), or negative: in none. The caller has checked it.
  static Ptr create(cpu::Buffer<int32_t> group_of, int64_t n_groups);
  // Group g is rows offsets[g] .. offsets[g + 1]; the first is 0, and they ascend.
  static Ptr contiguous(cpu::Buffer<int32_t> offsets);

  int64_t n_rows() const { return group_of_.size(); }
  int64_t n_groups() const { return n_groups_; }
  const int32_t* group_of() const { return group_of_.data(); }
  // Rows by group, ascending inside; made on first use.
  const cpu::Segments& segments() const;
  // The same for kernels of a GPU, with long groups cut into pieces; `rows` is empty where that of
  // segments() is.
  struct Arrays {
    mx::array offsets, group_of;
    std::optional<mx::array> rows;
    std::vector<SegmentPieces> pieces;
  };
  const Arrays& arrays() const;
  // The same as one list of edges row -> group.
  cpu::RelationLists lists() const;
  // (G, 1) float32: rows of each group.
  mx::array counts() const;

 private:
  RowGroups() = default;
  cpu::Buffer<int32_t> group_of_;
  int64_t n_groups_ = 0;
  mutable std::once_flag once_, arrays_once_;
  mutable cpu::Buffer<int32_t> offsets_, rows_;
  mutable cpu::Segments segments_;
  mutable std::optional<Arrays> arrays_;
};

}  // namespace lattice
