// A geometry plan: every relation that a network needs on one scan, built ahead of the arithmetic.
//
//   record(x)   what the manager of x holds after a network was applied to x, with the views that
//               convolution, and for training its gradients, read; features stay lazy
//   bind(f)     a sparse tensor with other features on the same coordinates; a network on it
//               builds nothing
//   encode()    the given coordinates and the steps; decode() makes the relations again, which
//               takes milliseconds
//
// A step relates slot `in` to slot `target`, or makes a new slot. Slot 0 is x; slots after it are
// other coordinates that steps name as targets; then one slot for each step that makes coordinates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

class GeometryPlan {
 public:
  // `gradients`: also what the gradients read (reversed lists and their tiles).
  static GeometryPlan record(const SparseTensor& x, bool gradients = true);
  // Throws std::invalid_argument for bytes that are no plan.
  static GeometryPlan decode(std::span<const uint8_t> data, bool gradients = true);
  std::vector<uint8_t> encode() const;

  SparseTensor bind(const mx::array& feats) const;

  const ManagerPtr& manager() const { return manager_; }
  const CoordinateMapKey& key() const { return roots_.front(); }
  const std::optional<BatchCounts>& batch_counts() const { return batch_counts_; }
  const std::vector<CachedRelation>& steps() const { return steps_; }
  size_t nbytes() const;
  std::string text() const;

 private:
  GeometryPlan() = default;
  void prepare(bool gradients) const;

  ManagerPtr manager_;
  std::vector<CoordinateMapKey> roots_;
  std::optional<BatchCounts> batch_counts_;
  std::vector<CachedRelation> steps_;  // each after those that make its coordinates
};

}  // namespace lattice
