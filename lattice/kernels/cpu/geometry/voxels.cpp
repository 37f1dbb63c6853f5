#include "lattice/kernels/cpu/geometry/voxels.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lattice::cpu {
namespace {

constexpr int32_t kNone = -1;

// Voxel of a cell number: open addressing, at most half full.
class CellTable {
 public:
  explicit CellTable(int64_t n)
      : bits_(std::max(4, static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) + 1)),
        keys_(int64_t{1} << bits_),
        voxels_(int64_t{1} << bits_) {
    std::fill(voxels_.begin(), voxels_.end(), kNone);
  }
  // Where the voxel of a cell stands, or where it may be written; kNone: there is none.
  int32_t& at(int64_t cell) {
    const uint64_t mixed = static_cast<uint64_t>(cell) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
    const int64_t mask = keys_.size() - 1;
    for (int64_t i = static_cast<int64_t>(mixed >> (64 - bits_));; i = (i + 1) & mask) {
      if (voxels_[i] == kNone) keys_[i] = cell;
      if (keys_[i] == cell) return voxels_[i];
    }
  }

 private:
  int bits_;
  Buffer<int64_t> keys_;
  Buffer<int32_t> voxels_;
};

// The cell of a point as x + cells_x * (y + cells_y * z); kNone: outside.
int64_t cell_of(const float* p, const VoxelGrid& grid, std::array<int32_t, 3>* cell) {
  for (size_t a = 0; a < 3; ++a) {
    const float place = std::floor((p[a] - grid.low[a]) / grid.size[a]);
    if (!(place >= 0) || !(place < static_cast<float>(grid.cells[a]))) return kNone;
    (*cell)[a] = static_cast<int32_t>(place);
  }
  return (int64_t{(*cell)[2]} * grid.cells[1] + (*cell)[1]) * grid.cells[0] + (*cell)[0];
}

}  // namespace

VoxelPoints voxelize_points(const float* points, int64_t n, int64_t width, const VoxelGrid& grid,
                            int64_t max_points, int64_t max_voxels) {
  VoxelPoints out;
  const int64_t most = max_voxels < 0 ? n : std::min(n, max_voxels);
  out.cells = Buffer<int32_t>(most * 3);
  out.counts = Buffer<int32_t>(most);
  out.owner = Buffer<int32_t>(n);
  out.slot = Buffer<int32_t>(n);
  CellTable table(n);
  for (int64_t i = 0; i < n; ++i) {
    out.owner[i] = out.slot[i] = kNone;
    std::array<int32_t, 3> cell{};
    const int64_t number = cell_of(points + i * width, grid, &cell);
    if (number == kNone) {
      ++out.dropped.outside;
      continue;
    }
    int32_t& voxel = table.at(number);
    if (voxel == kNone) {
      if (out.n_voxels == most) {
        ++out.dropped.full_grid;
        continue;
      }
      voxel = static_cast<int32_t>(out.n_voxels++);
      for (int a = 0; a < 3; ++a)
        out.cells[voxel * int64_t{3} + a] = cell[static_cast<size_t>(2 - a)];
      out.counts[voxel] = 0;
    }
    out.owner[i] = voxel;
    if (max_points >= 0 && out.counts[voxel] >= max_points) {
      ++out.dropped.full_voxel;
      continue;
    }
    out.slot[i] = out.counts[voxel]++;
  }
  out.cells.shrink(out.n_voxels * 3);
  out.counts.shrink(out.n_voxels);
  return out;
}

void fill_slots(const float* points, int64_t n, int64_t width, const VoxelPoints& found,
                int64_t slots, float* out) {
  std::fill(out, out + found.n_voxels * slots * width, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    if (found.slot[i] != kNone)
      std::copy_n(points + i * width, width,
                  out + (int64_t{found.owner[i]} * slots + found.slot[i]) * width);
}

void voxel_means(const float* points, int64_t n, int64_t width, const VoxelPoints& found,
                 float* out) {
  std::fill(out, out + found.n_voxels * width, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    if (found.slot[i] != kNone)
      for (int64_t c = 0; c < width; ++c)
        out[int64_t{found.owner[i]} * width + c] += points[i * width + c];
  for (int64_t v = 0; v < found.n_voxels; ++v)
    for (int64_t c = 0; c < width; ++c)
      out[v * width + c] /= static_cast<float>(std::max(found.counts[v], 1));
}

}  // namespace lattice::cpu
