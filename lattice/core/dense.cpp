#include "lattice/core/dense.h"

#include <mlx/ops.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {
namespace {

using cpu::int128;

using Extent = std::array<int64_t, 4>;  // B, X, Y, Z

std::string extent_text(const Extent& e) {
  return "(" + std::to_string(e[0]) + ", " + std::to_string(e[1]) + ", " + std::to_string(e[2]) +
         ", " + std::to_string(e[3]) + ")";
}

Extent dense_extent(const SparseTensor& x, const std::optional<std::vector<int64_t>>& shape,
                    const std::array<int128, 4>& lowest) {
  Extent extent{x.batch_size(), 0, 0, 0};
  if (shape) {
    const size_t n = shape->size();
    if (n < 3 || n > 5) fail("to_dense", "shape must have 3 to 5 sizes, got " + std::to_string(n));
    if (n == 5 && shape->back() != x.channels())
      fail("to_dense", "shape must end with the " + std::to_string(x.channels()) +
                           " channels, got " + std::to_string(shape->back()));
    if (std::any_of(shape->begin(), shape->end(), [](int64_t v) { return v < 0; }))
      fail("to_dense", "shape must not be negative");
    if (n == 3) std::copy_n(shape->begin(), 3, extent.begin() + 1);
    if (n > 3) std::copy_n(shape->begin(), 4, extent.begin());
  } else {
    const cpu::Box& box = x.coordinate_set().box();
    for (size_t a = 1; a < 4 && !box.empty(); ++a)
      extent[a] = static_cast<int64_t>(
          std::clamp<int128>(box.hi[a] - lowest[a] + 1, 0, std::numeric_limits<int32_t>::max()));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int128 cells = 1;
  for (int64_t v : extent) cells = std::min<int128>(cells * v, int128{1} << 62);
  if (cells > kMost || *std::max_element(extent.begin(), extent.end()) > kMost)
    fail("to_dense", "shape " + extent_text(extent) + " has more than 2^31 - 1 cells");
  return extent;
}

}  // namespace

mx::array to_dense(const SparseTensor& x, const std::optional<std::vector<int64_t>>& shape,
                   const std::optional<Triple>& min_coord, mx::StreamOrDevice s) {
  const CoordinateSet& set = x.coordinate_set();
  set.unique_index("to_dense");
  std::array<int128, 4> lowest{0, 0, 0, 0};
  for (size_t a = 0; a < 3 && min_coord; ++a) lowest[a + 1] = (*min_coord)[a];
  const Extent extent = dense_extent(x, shape, lowest);
  const cpu::CoordSpan span = set.span();
  const int rows = static_cast<int>(span.rows);
  cpu::Buffer<int32_t> cell(rows);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t at = 0;
    for (int a = 0; a < 4; ++a) {
      const int128 v = int128{span.at(r, a)} - lowest[static_cast<size_t>(a)];
      const int64_t size = extent[static_cast<size_t>(a)];
      if (v < 0 || v >= size)
        fail("to_dense", "coords row " + std::to_string(r) + " = " + cpu::to_string(span.row(r)) +
                             " lies outside shape " + extent_text(extent) + " from min_coord " +
                             triple_text(min_coord.value_or(Triple{0, 0, 0})) +
                             "; give shape= and min_coord= that hold every row");
      at = at * size + static_cast<int64_t>(v);
    }
    cell[r] = static_cast<int32_t>(at);
  }
  const int channels = static_cast<int>(x.channels());
  mx::Shape full;
  int cells = 1;
  for (int64_t v : extent) full.push_back(static_cast<int>(v)), cells *= full.back();
  full.push_back(channels);
  mx::array dense = mx::zeros({cells, channels}, x.dtype(), s);
  if (rows > 0 && channels > 0)  // MLX divides by the size of the updates
    dense = mx::scatter(dense, {adopt(std::move(cell), {rows})},
                        mx::reshape(x.feats(), {rows, 1, channels}, s), {0}, s);
  return mx::reshape(dense, full, s);
}

SparseTensor from_dense(const mx::array& dense, const std::optional<mx::array>& mask,
                        const Triple& stride, const Triple& min_coord, mx::StreamOrDevice s) {
  if (dense.ndim() != 5)
    fail("from_dense", "array must have shape (B, X, Y, Z, C), got " + shape_text(dense.shape()));
  const mx::Shape cells(dense.shape().begin(), dense.shape().end() - 1);
  if (mask && (mask->shape() != cells || mask->dtype() != mx::bool_))
    fail("from_dense", "mask must be bool of shape " + shape_text(cells) + ", got " +
                           graph::dtype_name(mask->dtype()) + " of shape " +
                           shape_text(mask->shape()));
  const auto any_channel = [&] {
    if (dense.shape(4) == 0) return mx::zeros(cells, mx::bool_, s);  // as in sum_axis
    return mx::any(mx::not_equal(dense, mx::array(0, dense.dtype()), s), -1, false, s);
  };
  const mx::array chosen = mask ? *mask : any_channel();
  const mx::array keep = evaluated(chosen, "from_dense", "array");
  cpu::Buffer<int32_t> cell;
  if (keep.size())
    cell = cpu::rows_where({reinterpret_cast<const uint8_t*>(keep.data<bool>()), keep.size()});
  const int rows = static_cast<int>(cell.size());
  cpu::Buffer<int32_t> coords(int64_t{rows} * 4);
  BatchCounts counts(static_cast<size_t>(cells[0]), 0);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t at = cell[r];
    for (size_t a = 3; a > 0; --a) {
      int64_t value = 0;
      if (__builtin_add_overflow(at % cells[static_cast<int>(a)], min_coord[a - 1], &value) ||
          value != static_cast<int32_t>(value))
        throw std::overflow_error(
            "[from_dense] " + std::string(cpu::axis_name(static_cast<int>(a))) + " of min_coord " +
            triple_text(min_coord) + " moves a row out of the range of int32");
      coords[r * 4 + static_cast<int64_t>(a)] = static_cast<int32_t>(value);
      at /= cells[static_cast<int>(a)];
    }
    coords[r * 4] = static_cast<int32_t>(at);
    ++counts[static_cast<size_t>(at)];
  }
  const int channels = dense.shape(4);
  const mx::array flat = mx::reshape(dense, {static_cast<int>(keep.size()), channels}, s);
  return {adopt(std::move(coords), {rows, 4}),
          take_rows(flat, adopt(std::move(cell), {rows}), s),
          stride,
          std::nullopt,
          nullptr,
          std::move(counts)};
}

}  // namespace lattice
