#include "lattice/core/point_set.h"

#include <mlx/ops.h>

#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/rulebook.h"

namespace lattice {

PointSet::PointSet(const mx::array& positions, const std::optional<mx::array>& lengths, float grid)
    : positions_(positions), grid_(grid) {
  constexpr const char* kName = "PointSet";
  if (positions.ndim() != 2 || positions.shape(1) != 3)
    fail(kName, "positions must have shape (N, 3), got " + shape_text(positions.shape()));
  graph::visit_float(positions.dtype(), [](auto) {}, kName);
  if (!(grid > 0) || !std::isfinite(grid))
    fail(kName, "grid must be finite and > 0, got " + std::to_string(grid));
  positions_ = evaluated(mx::astype(positions, mx::float32), kName, "positions");
  if (lengths) {
    const cpu::Buffer<int32_t> offsets =
        checked_offsets(*lengths, positions.shape(0), kName, "lengths");
    offsets_.assign(offsets.begin(), offsets.end());
  } else {
    offsets_ = {0, positions.shape(0)};
  }
  if (const int64_t bad = size() ? cpu::first_bad_point(positions_.data<float>(), size()) : -1;
      bad >= 0)
    fail(kName, "positions must be finite, got row " + std::to_string(bad));
}

mx::array PointSet::lengths() const {
  std::vector<int32_t> lengths;
  for (size_t b = 0; b + 1 < offsets_.size(); ++b) lengths.push_back(offsets_[b + 1] - offsets_[b]);
  return mx::array(lengths.data(), {static_cast<int>(lengths.size())}, mx::int32);
}

}  // namespace lattice
