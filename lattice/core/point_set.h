// Ragged sets of points: clouds of several lengths in one array.
#pragma once

#include <optional>
#include <vector>

#include "lattice/core/arrays.h"

namespace lattice {

// Points of clouds that follow each other: positions (N, 3) float32, rows of cloud b are offsets[b]
// .. offsets[b + 1].
class PointSet {
 public:
  // lengths (B,) sum to N; without them there is one cloud. grid: the size of a kernel cell, > 0.
  PointSet(const mx::array& positions, const std::optional<mx::array>& lengths, float grid);

  const mx::array& positions() const { return positions_; }
  const std::vector<int32_t>& offsets() const { return offsets_; }
  mx::array lengths() const;
  int64_t size() const { return positions_.shape(0); }
  int64_t batch_size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  float grid() const { return grid_; }
  PointSet with_grid(float grid) const { return PointSet(positions_, lengths(), grid); }

 private:
  mx::array positions_;
  std::vector<int32_t> offsets_;
  float grid_;
};

}  // namespace lattice
