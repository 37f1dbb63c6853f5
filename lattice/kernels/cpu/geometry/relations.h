// Kernel relations on lattice coordinates, from sorted keys.
//
// Gathering kinds (forward, target, submanifold) have edge (i, o, k) if and only if
//   in[i] = out[o] * stride + offset[k] - padding.
// Scattering kinds (transposed, generative, target-transposed) have it if and only if
//   out[o] = in[i] * stride + offset[k] - padding.
//
// Algorithm, once the rows of both ends are sorted:
//   1. Anchors are the coordinates of one end * stride - padding, still sorted, as keys in the key
//      space of the other end.
//   2. For each (x, y) offset, walk anchors + offset and the keys of the other end together. The z
//      offsets of a match are neighbors in the sorted sequence, so one walk serves all of
//      them.
//   3. Each walk appends to the lists of its offsets in ascending order.
//
// Nothing is hashed; an offset costs a share of one linear walk. A relation with odd sizes, stride
// 1 and no padding on its own coordinates is symmetric. Then only half of the offsets are walked;
// the others are the same lists with their ends swapped.
#pragma once

#include <memory>
#include <vector>

#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

struct Kernel {
  Triple size{3, 3, 3};
  Triple stride{1, 1, 1};
  Triple padding{0, 0, 0};
  Triple dilation{1, 1, 1};
  bool centered = true;  // offsets of an odd size around 0; otherwise from 0

  int64_t volume() const { return size[0] * size[1] * size[2]; }
  // Smallest and largest offset of an axis.
  int64_t first(size_t axis) const {
    return centered && size[axis] % 2 == 1 ? -(size[axis] / 2) * dilation[axis] : 0;
  }
  int64_t last(size_t axis) const { return first(axis) + (size[axis] - 1) * dilation[axis]; }
  Triple offset(int64_t k) const;
  // Stride 1, no padding, odd sizes, centered: list K-1-k mirrors list k on the input's own
  // coordinates.
  bool symmetric() const;
};

// Output coordinates that a relation makes: rows (batch, x, y, z) of the input's dtype, and the
// order of their keys.
struct MadeCoords {
  Buffer<std::byte> data;
  int64_t rows = 0;
};

// Indexes must be free of duplicates at the input end; the caller checks (CoordIndex::duplicate).
// On the input's own coordinates (stride 1, no padding).
RelationLists relate_same(const std::shared_ptr<const CoordIndex>& in, const Kernel& kernel);
// Onto given output rows.
RelationLists relate_gather(const std::shared_ptr<const CoordIndex>& in,
                            const std::shared_ptr<const CoordIndex>& out, const Kernel& kernel);
RelationLists relate_scatter(const std::shared_ptr<const CoordIndex>& in,
                             const std::shared_ptr<const CoordIndex>& out, const Kernel& kernel);
// Onto the distinct floor(in / stride), first seen first.
RelationLists relate_downscaled(const CoordSpan& coords,
                                const std::shared_ptr<const CoordIndex>& in, const Kernel& kernel,
                                MadeCoords* made);
// Onto the distinct in * stride + offset - padding, first seen first over rows, then offsets.
// Throws std::overflow_error when one leaves the dtype, std::length_error when there are 2^31 edges
// or more.
RelationLists relate_generated(const CoordSpan& coords, const std::shared_ptr<const CoordIndex>& in,
                               const Kernel& kernel, MadeCoords* made);

}  // namespace lattice::cpu
