/// @file
/// A geometry plan: every relation that a network needs on one scan, built ahead of the arithmetic.
///
/// record(x) keeps what the manager of x holds after a network was applied to x, with the views
/// that convolution reads, and for training its gradients; features stay lazy. bind(f) is a sparse
/// tensor with other features on the same coordinates; a network on it builds nothing. encode()
/// writes the given coordinates and the steps; decode() makes the relations again, which takes
/// milliseconds.
///
/// A step relates slot `in` to slot `target`, or makes a new slot. Slot 0 is x; slots after it are
/// other coordinates that steps name as targets; then one slot for each step that makes
/// coordinates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// Everything a network needs to know about the coordinates of one scan.
class LATTICE_API GeometryPlan {
 public:
  /// With `gradients` the plan also builds what gradients read, such as reversed lists. With `gpu`
  /// it builds what the kernels of a GPU read, and not what those of the CPU read.
  static GeometryPlan record(const SparseTensor& x, bool gradients = true, bool gpu = false);
  /// `build` makes the relations: relation_builder() of ops/relations.h asks the routes. Throws
  /// std::invalid_argument for bytes that are no plan.
  static GeometryPlan decode(std::span<const uint8_t> data, bool gradients,
                             const RelationBuilder& build, bool gpu = false);
  /// The coordinates and the steps as bytes, for decode().
  std::vector<uint8_t> encode() const;

  /// A tensor of these features (N, C) on the coordinates of the plan.
  SparseTensor bind(const mx::array& feats) const;

  /// The manager that holds the relations.
  const ManagerPtr& manager() const { return manager_; }
  /// The key of the coordinates of x.
  const CoordinateMapKey& key() const { return roots_.front(); }
  /// Rows of each batch item, if x knew them.
  const std::optional<BatchCounts>& batch_counts() const { return batch_counts_; }
  /// The relations, each after those that make its coordinates.
  const std::vector<CachedRelation>& steps() const { return steps_; }
  /// Bytes of all relations.
  size_t nbytes() const;
  /// A text with one line for each step.
  std::string text() const;

 private:
  GeometryPlan() = default;
  void prepare(bool gradients, bool gpu) const;

  ManagerPtr manager_;
  std::vector<CoordinateMapKey> roots_;
  std::optional<BatchCounts> batch_counts_;
  std::vector<CachedRelation> steps_;  ///< each after those that make its coordinates
};

}  // namespace lattice
