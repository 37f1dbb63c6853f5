#include "lattice/ops/voxels.h"

#include <mlx/ops.h>

#include <cmath>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/voxels.h"

namespace lattice {
namespace {

constexpr const char* kName = "point_voxels";

cpu::VoxelGrid grid_of(const std::array<double, 3>& low, const std::array<double, 3>& high,
                       const std::array<double, 3>& size) {
  cpu::VoxelGrid grid{};
  for (size_t a = 0; a < 3; ++a) {
    const std::string axis(1, "xyz"[a]);
    if (!std::isfinite(low[a]) || !std::isfinite(high[a]) || !std::isfinite(size[a]) ||
        size[a] <= 0)
      fail(kName, "low, high and size must be finite and size > 0, got " + std::to_string(low[a]) +
                      ", " + std::to_string(high[a]) + " and " + std::to_string(size[a]) +
                      " on axis " + axis);
    const double cells = std::round((high[a] - low[a]) / size[a]);
    if (cells < 1 || cells > (1 << 20))
      fail(kName, "the grid must have 1..1048576 cells along " + axis + ", got " +
                      std::to_string(cells) + "; high - low must be a multiple of size");
    grid.low[a] = static_cast<float>(low[a]);
    grid.size[a] = static_cast<float>(size[a]);
    grid.cells[a] = static_cast<int32_t>(cells);
  }
  return grid;
}

}  // namespace

mx::array PointVoxels::dropped() const {
  const std::array<int32_t, 3> counts{static_cast<int32_t>(outside),
                                      static_cast<int32_t>(full_voxel),
                                      static_cast<int32_t>(full_grid)};
  return new_array(counts.data(), {3}, mx::int32);
}

PointVoxels point_voxels(const mx::array& points, const std::array<double, 3>& low,
                         const std::array<double, 3>& high, const std::array<double, 3>& size,
                         int64_t max_points, int64_t max_voxels) {
  if (points.ndim() != 2 || points.shape(1) < 3)
    fail(kName, "points must have shape (N, F) with F >= 3: x, y, z and features; got " +
                    shape_text(points.shape()));
  if (!is_float(points.dtype()) && points.dtype() != mx::float64)
    fail(kName, "points must be float32, got " + graph::dtype_name(points.dtype()));
  if (max_points < -1 || max_points == 0 || max_voxels < -1)
    fail(kName, "max_points must be >= 1 and max_voxels >= 0, or -1 for no limit, got " +
                    std::to_string(max_points) + " and " + std::to_string(max_voxels));
  const cpu::VoxelGrid grid = grid_of(low, high, size);
  const mx::array p = evaluated(mx::astype(points, mx::float32, mx::Device::cpu), kName, "points");
  const int64_t n = p.shape(0), width = p.shape(1);
  const float* values = p.size() ? p.data<float>() : nullptr;
  cpu::VoxelPoints found = cpu::voxelize_points(values, n, width, grid, max_points, max_voxels);
  const int64_t slots = std::max<int64_t>(max_points, 0), v = found.n_voxels;
  cpu::Buffer<float> filled(v * slots * width), mean(v * width);
  if (slots) cpu::fill_slots(values, n, width, found, slots, filled.data());
  cpu::voxel_means(values, n, width, found, mean.data());
  const int rows = static_cast<int>(v), columns = static_cast<int>(width);
  return {adopt(std::move(filled), {rows, static_cast<int>(slots), columns}),
          adopt(std::move(mean), {rows, columns}),
          adopt(std::move(found.cells), {rows, 3}),
          adopt(std::move(found.counts), {rows}),
          adopt(std::move(found.owner), {static_cast<int>(n)}),
          found.dropped.outside,
          found.dropped.full_voxel,
          found.dropped.full_grid};
}

}  // namespace lattice
