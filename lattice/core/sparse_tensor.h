/// @file
/// A sparse tensor: row r is the feature vector feats[r] at coords[r] = (batch, x, y, z), lattice
/// indices at `stride`.
///
/// Coordinates have computed values and are named by a key in a manager: two tensors share
/// coordinates if and only if manager and key are equal. Features stay lazy. Immutable and cheap to
/// copy.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/core/coordinate_manager.h"

namespace lattice {

/// How managers are held.
using ManagerPtr = std::shared_ptr<CoordinateManager>;
/// Rows of each batch item.
using BatchCounts = std::vector<int64_t>;

/// What a tensor is made of, as plain data. Key and manager are present or absent together; absent,
/// the tensor that is made from this gets an identity of its own.
struct SparseTensorComponents {
  mx::array coords;                           ///< (N, 4) int32 or int64
  mx::array feats;                            ///< (N, C)
  Triple stride{1, 1, 1};                     ///< steps of the finest lattice between two rows
  std::optional<BatchCounts> batch_counts;    ///< rows of each batch item
  std::optional<mx::array> active_rows;       ///< (1,) int32: rows that count
  std::optional<CoordinateMapKey> coord_key;  ///< the identity of the coordinates
  ManagerPtr coord_manager;                   ///< who owns the key
};

/// Features on coordinates. Immutable and cheap to copy.
class LATTICE_API SparseTensor {
 public:
  /// `coords` (N, 4), `feats` (N, C). `active_rows`, a (1,) int32 array, keeps that many leading
  /// rows. `batch_counts` must be the counts of the batch column. A key needs its manager, the
  /// key's stride and the manager's own array as `coords`. Without a key the coordinates are
  /// inserted into `manager`, without a manager into a new one.
  SparseTensor(const mx::array& coords, const mx::array& feats, const Triple& stride = {1, 1, 1},
               const std::optional<CoordinateMapKey>& key = std::nullopt,
               ManagerPtr manager = nullptr, std::optional<BatchCounts> batch_counts = std::nullopt,
               const std::optional<mx::array>& active_rows = std::nullopt);
  /// On a coordinate set that the manager owns.
  SparseTensor(ManagerPtr manager, const CoordinateMapKey& key, mx::array feats,
               std::optional<BatchCounts> batch_counts = std::nullopt);
  /// The tensor from the parts that export_components() returned.
  static SparseTensor from_components(const SparseTensorComponents& parts);

  /// (N, 4).
  const mx::array& coords() const { return set_.array(); }
  /// The coordinates with their index.
  const CoordinateSet& coordinate_set() const { return set_; }
  /// (N, C), lazy.
  const mx::array& feats() const { return feats_; }
  /// Steps of the finest lattice between two rows.
  const Triple& stride() const { return key_.stride; }
  /// The identity of the coordinates.
  const CoordinateMapKey& coord_key() const { return key_; }
  /// Who owns the coordinates and keeps their relations.
  const ManagerPtr& coord_manager() const { return manager_; }
  /// Rows of each batch item, if they are known.
  const std::optional<BatchCounts>& batch_counts() const { return batch_counts_; }
  /// (1,) int32: the number of rows.
  mx::array active_rows() const;
  /// N.
  int64_t capacity() const { return set_.rows(); }
  /// N.
  int64_t active_count() const { return set_.rows(); }
  /// C.
  int64_t channels() const { return feats_.shape(1); }
  /// Of the features.
  mx::Dtype dtype() const { return feats_.dtype(); }

  /// The box in which reached supports of this tensor lie, if it was given (`with_bounds`) or
  /// passed on by the layer that made the tensor.
  std::optional<Bounds> bounds() const { return manager_->bounds(key_); }
  /// The same rows with bounds. The result has an identity of its own, the same one for equal
  /// bounds.
  SparseTensor with_bounds(const Bounds& bounds) const;

  /// batch_counts, else the largest batch + 1.
  int64_t batch_size() const;
  /// (N,), dtype of the coordinates.
  mx::array batch_indices() const;
  /// For each batch item its rows, ascending, int32.
  std::vector<mx::array> batch_rows() const;
  /// For each batch item (n, 3) coordinates without the batch, in row order.
  std::vector<mx::array> decomposed_coordinates() const;
  /// For each batch item (n, C) features, in row order.
  std::vector<mx::array> decomposed_features() const;

  /// Same coordinates, same identity.
  SparseTensor with_feats(mx::array feats) const;
  /// The same with features of another dtype.
  SparseTensor astype(mx::Dtype dtype) const;
  /// A copy with some parts replaced. New features alone keep the identity; new coordinates or a
  /// new stride name another set of the same manager.
  SparseTensor replace(const std::optional<mx::array>& coords,
                       const std::optional<mx::array>& feats,
                       const std::optional<Triple>& stride) const;
  /// These features on the other's coordinates, row by row.
  SparseTensor reuse_coords_from(const SparseTensor& other) const;
  /// Whether manager and key are equal.
  bool same_coords(const SparseTensor& other) const;
  /// The tensor with its rows in the order (batch, x, y, z), and for each of them its row in this
  /// tensor. Kernels walk rows in this order, so convolutions read such rows faster, and a whole
  /// network gains from sorting once. A tensor that is already sorted returns itself.
  std::pair<SparseTensor, mx::array> sorted() const;

  /// What the tensor is made of.
  SparseTensorComponents export_components() const;
  /// A description in one line.
  std::string text() const;

 private:
  void check_feats(const char* operation) const;

  ManagerPtr manager_;
  CoordinateMapKey key_;
  CoordinateSet set_;
  mx::array feats_;
  std::optional<BatchCounts> batch_counts_;
};

/// Rows of each batch item, at least `size` of them.
LATTICE_API BatchCounts count_batches(const CoordinateSet& coords, int64_t size = 0);

}  // namespace lattice
