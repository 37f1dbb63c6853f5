#include "lattice/core/sparse_tensor.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {
namespace {

constexpr const char* kName = "SparseTensor";
// A batch column may name any int32; more items than this are no batch but a mistake.
constexpr int64_t kMaxBatches = int64_t{1} << 24;

std::string counts_text(const BatchCounts& counts) {
  std::string text = "(";
  for (size_t i = 0; i < counts.size() && i < 16; ++i)
    text.append(i ? ", " : "").append(std::to_string(counts[i]));
  return text.append(counts.size() > 16 ? ", ...)" : ")");
}

void check_counts(const std::optional<BatchCounts>& counts, const CoordinateSet& set) {
  if (!counts) return;
  for (int64_t n : *counts)
    if (n < 0) fail(kName, "batch_counts must not be negative, got " + counts_text(*counts));
  if (const int64_t sum = std::accumulate(counts->begin(), counts->end(), int64_t{0});
      sum != set.rows())
    fail(kName, "batch_counts must sum to " + std::to_string(set.rows()) + " rows, got " +
                    counts_text(*counts) + " with sum " + std::to_string(sum));
  const auto found = count_batches(set, static_cast<int64_t>(counts->size()));
  if (found != *counts)
    fail(kName, "batch_counts must be the counts of the batch column, " + counts_text(found) +
                    ", got " + counts_text(*counts));
}

CoordinateMapKey place(const mx::array& coords, const Triple& stride,
                       const std::optional<CoordinateMapKey>& key, const ManagerPtr& manager,
                       const std::optional<mx::array>& active_rows) {
  if (!key) return manager->insert_coords(coords, stride, active_rows, kName);
  if (!manager->owns(*key))
    fail(kName, "coord_key " + std::to_string(key->id) + " of manager " +
                    std::to_string(key->manager_id) + " does not belong to coord_manager " +
                    std::to_string(manager->id()));
  if (key->stride != stride)
    fail(kName,
         "stride must be the key's " + triple_text(key->stride) + ", got " + triple_text(stride));
  if (manager->coords(*key).id() != coords.id())
    fail(kName,
         "coords must be the manager's own array, coord_manager.coords(coord_key), got another "
         "array");
  if (active_rows && keep_active(coords, active_rows, kName).id() != coords.id())
    fail(kName, "active_rows must be the number of rows of coord_key, got fewer");
  return *key;
}

ManagerPtr manager_or_new(const std::optional<CoordinateMapKey>& key, ManagerPtr manager) {
  if (key && !manager) fail(kName, "coord_key needs its coord_manager, got None");
  return manager ? std::move(manager) : CoordinateManager::create();
}

// The rows of feats that `active_rows` keeps. `feats` and `coords` may differ in the number of rows
// behind these; the shape is checked before and after.
mx::array kept_feats(const mx::array& feats, const std::optional<mx::array>& active_rows) {
  return active_rows && feats.ndim() == 2 ? keep_active(feats, active_rows, kName) : feats;
}

// Rows begin .. begin + n of a 2-D array.
mx::array row_slice(const mx::array& a, int begin, int n, int first_column = 0) {
  return mx::slice(a, {begin, first_column}, {begin + n, a.shape(1)});
}

}  // namespace

BatchCounts count_batches(const CoordinateSet& coords, int64_t size) {
  if (coords.rows() > 0) {
    const cpu::int128 largest = coords.box().hi[0];
    if (largest >= kMaxBatches)
      fail(kName, "batch must be below " + std::to_string(kMaxBatches) +
                      " to count the items, got " + cpu::to_string(largest));
    size = std::max(size, static_cast<int64_t>(largest) + 1);
  }
  BatchCounts counts(static_cast<size_t>(size), 0);
  coords.span().visit([&](const auto* c) {
    for (int64_t r = 0; r < coords.rows(); ++r) ++counts[static_cast<size_t>(c[r * 4])];
  });
  return counts;
}

SparseTensor::SparseTensor(const mx::array& coords, const mx::array& feats, const Triple& stride,
                           const std::optional<CoordinateMapKey>& key, ManagerPtr manager,
                           std::optional<BatchCounts> batch_counts,
                           const std::optional<mx::array>& active_rows)
    : manager_(manager_or_new(key, std::move(manager))),
      key_(place(coords, stride, key, manager_, active_rows)),
      set_(manager_->set(key_)),
      feats_(kept_feats(feats, active_rows)),
      batch_counts_(std::move(batch_counts)) {
  check_feats(kName);
  check_counts(batch_counts_, set_);
}

SparseTensor::SparseTensor(ManagerPtr manager, const CoordinateMapKey& key, mx::array feats,
                           std::optional<BatchCounts> batch_counts)
    : manager_(std::move(manager)),
      key_(key),
      set_(manager_->set(key)),
      feats_(std::move(feats)),
      batch_counts_(std::move(batch_counts)) {
  check_feats(kName);
  check_counts(batch_counts_, set_);
}

SparseTensor SparseTensor::from_components(const SparseTensorComponents& parts) {
  return {parts.coords,        parts.feats,        parts.stride,     parts.coord_key,
          parts.coord_manager, parts.batch_counts, parts.active_rows};
}

void SparseTensor::check_feats(const char* operation) const {
  if (feats_.ndim() != 2 || feats_.shape(0) != set_.rows())
    fail(operation, "feats must have shape (" + std::to_string(set_.rows()) +
                        ", C), one row per coordinate, got " + shape_text(feats_.shape()));
}

mx::array SparseTensor::active_rows() const { return manager_->active_rows(key_); }

int64_t SparseTensor::batch_size() const {
  if (batch_counts_) return static_cast<int64_t>(batch_counts_->size());
  if (set_.rows() == 0) return 0;
  return static_cast<int64_t>(
      std::min<cpu::int128>(set_.box().hi[0] + 1, std::numeric_limits<int64_t>::max()));
}

mx::array SparseTensor::batch_indices() const {
  return evaluated(
      mx::reshape(mx::slice(coords(), {0, 0}, {static_cast<int>(set_.rows()), 1}), {-1}), kName,
      "coords");
}

std::vector<mx::array> SparseTensor::batch_rows() const {
  const BatchCounts counts = count_batches(set_, batch_size());
  std::vector<cpu::Buffer<int32_t>> rows;
  for (int64_t n : counts) rows.emplace_back(n);
  std::vector<int64_t> filled(counts.size(), 0);
  for (int64_t r = 0; r < set_.rows(); ++r) {
    const auto b = static_cast<size_t>(set_.span().at(r, 0));
    rows[b][filled[b]++] = static_cast<int32_t>(r);
  }
  std::vector<mx::array> out;
  for (auto& list : rows) {
    const int n = static_cast<int>(list.size());
    out.push_back(adopt(std::move(list), {n}));
  }
  return out;
}

namespace {
// The rows of each item; a slice where they are adjacent, as they are after collating.
std::vector<mx::array> decompose(const SparseTensor& t, const mx::array& values, int first_column) {
  std::vector<mx::array> out;
  for (const mx::array& rows : t.batch_rows()) {
    const int n = static_cast<int>(rows.size());
    const int32_t* r = n ? rows.data<int32_t>() : nullptr;
    if (n == 0 || r[n - 1] - r[0] == n - 1) {
      out.push_back(row_slice(values, n ? r[0] : 0, n, first_column));
    } else {
      out.push_back(take_rows(mx::slice(values, {0, first_column}, values.shape()), rows));
    }
  }
  return out;
}
}  // namespace

std::vector<mx::array> SparseTensor::decomposed_coordinates() const {
  std::vector<mx::array> out = decompose(*this, coords(), 1);
  for (mx::array& item : out) item = evaluated(item, kName, "coords");
  return out;
}

std::vector<mx::array> SparseTensor::decomposed_features() const {
  return decompose(*this, feats_, 0);
}

SparseTensor SparseTensor::with_bounds(const Bounds& bounds) const {
  return SparseTensor(manager_, manager_->with_bounds(key_, bounds), feats_, batch_counts_);
}

SparseTensor SparseTensor::with_feats(mx::array feats) const {
  SparseTensor out = *this;
  out.feats_ = std::move(feats);
  out.check_feats("SparseTensor.with_feats");
  return out;
}

SparseTensor SparseTensor::astype(mx::Dtype dtype) const {
  return with_feats(mx::astype(feats_, dtype));
}

SparseTensor SparseTensor::replace(const std::optional<mx::array>& coords,
                                   const std::optional<mx::array>& feats,
                                   const std::optional<Triple>& stride) const {
  SparseTensor out = *this;
  if (feats) out.feats_ = *feats;
  if (coords || stride) {
    const Triple step = stride.value_or(this->stride());
    out.key_ = coords ? manager_->insert_coords(*coords, step, std::nullopt, "SparseTensor.replace")
                      : manager_->insert_set(set_, step);
    out.set_ = manager_->set(out.key_);
    if (coords && batch_counts_)
      out.batch_counts_ = count_batches(out.set_, static_cast<int64_t>(batch_counts_->size()));
  }
  out.check_feats("SparseTensor.replace");
  return out;
}

SparseTensor SparseTensor::reuse_coords_from(const SparseTensor& other) const {
  const cpu::CoordSpan own = set_.span(), theirs = other.set_.span();
  if (!set_.same_as(other.set_)) {
    const size_t bytes = static_cast<size_t>(own.rows) * 4 * (own.is64 ? 8 : 4);
    if (own.rows != theirs.rows || own.is64 != theirs.is64 ||
        (bytes > 0 && std::memcmp(own.data, theirs.data, bytes) != 0))
      fail("SparseTensor.reuse_coords_from",
           "other must have the same coordinates row by row; "
           "reindex_sparse moves features onto other coordinates");
  }
  SparseTensor out = other;
  out.feats_ = feats_;
  out.check_feats("SparseTensor.reuse_coords_from");
  return out;
}

bool SparseTensor::same_coords(const SparseTensor& other) const {
  return manager_ == other.manager_ && key_ == other.key_;
}

std::pair<SparseTensor, mx::array> SparseTensor::sorted() const {
  const cpu::Buffer<int32_t>& order = set_.index()->order();
  const int n = static_cast<int>(order.size());
  cpu::Buffer<int32_t> rows(n);
  std::copy(order.begin(), order.end(), rows.begin());
  const bool in_place = std::is_sorted(order.begin(), order.end());
  const mx::array permutation = adopt(std::move(rows), {n});
  if (in_place) return {*this, permutation};
  const cpu::CoordSpan from = set_.span();
  cpu::Buffer<std::byte> moved(int64_t{n} * 4 * (from.is64 ? 8 : 4));
  cpu::take_rows(from, order.span(), moved.data());
  const CoordinateSet set(adopt(std::move(moved), {n, 4}, set_.dtype()), "SparseTensor.sorted");
  return {SparseTensor(manager_, manager_->insert_set(set, stride()),
                       take_rows(feats_, permutation), batch_counts_),
          permutation};
}

SparseTensorComponents SparseTensor::export_components() const {
  return {coords(), feats_, stride(), batch_counts_, active_rows(), key_, manager_};
}

std::string SparseTensor::text() const {
  std::string text = "SparseTensor(rows=" + std::to_string(capacity()) +
                     ", channels=" + std::to_string(channels()) +
                     ", dtype=" + graph::dtype_name(dtype()) + ", stride=" + triple_text(stride()) +
                     ", coords=" + graph::dtype_name(coords().dtype()) +
                     ", key=" + std::to_string(key_.manager_id) + "." + std::to_string(key_.id);
  if (batch_counts_) text += ", batches=" + std::to_string(batch_counts_->size());
  return text + ")";
}

}  // namespace lattice
