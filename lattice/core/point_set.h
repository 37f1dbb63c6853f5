/// @file
/// Ragged sets of points: clouds of several lengths in one array.
#pragma once

#include <optional>
#include <vector>

#include "lattice/core/names.h"

namespace lattice {

/// Points of clouds that follow each other: positions (N, 3) float32, rows of cloud b are
/// offsets[b] to offsets[b + 1] - 1.
class LATTICE_API PointSet {
 public:
  /// lengths (B,) sum to N; without them there is one cloud. grid: the size of a kernel cell, > 0.
  PointSet(const mx::array& positions, const std::optional<mx::array>& lengths, float grid);

  /// (N, 3) float32.
  const mx::array& positions() const { return positions_; }
  /// Where each cloud begins, and N: one number more than clouds.
  const std::vector<int32_t>& offsets() const { return offsets_; }
  /// (B,) int32: points of each cloud.
  mx::array lengths() const;
  /// N, points of all clouds.
  int64_t size() const { return positions_.shape(0); }
  /// B, the number of clouds.
  int64_t batch_size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  /// The size of a kernel cell.
  float grid() const { return grid_; }
  /// The same points with another grid.
  PointSet with_grid(float grid) const { return PointSet(positions_, lengths(), grid); }

 private:
  mx::array positions_;
  std::vector<int32_t> offsets_;
  float grid_;
};

}  // namespace lattice
