#include "lattice/core/coordinate_manager.h"

#include <mlx/ops.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {
namespace {

int64_t next_manager_id() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1);
}

void check_stride(const Triple& stride, const std::string& operation) {
  for (int64_t s : stride)
    if (s < 1) fail(operation, "stride must be >= 1, got " + triple_text(stride));
}

Triple product(const Triple& a, const Triple& b, std::string_view operation) {
  Triple out;
  for (size_t i = 0; i < 3; ++i)
    if (__builtin_mul_overflow(a[i], b[i], &out[i]))
      throw std::overflow_error("[" + std::string(operation) + "] stride " + triple_text(a) +
                                " * " + triple_text(b) + " leaves the range of int64");
  return out;
}

Triple quotient(const Triple& a, const Triple& b, std::string_view operation) {
  Triple out;
  for (size_t i = 0; i < 3; ++i) {
    if (a[i] % b[i] != 0)
      fail(operation, "stride " + triple_text(b) + " must divide the input's stride " +
                          triple_text(a) +
                          "; the input lies on its finest level, so a strided convolution or "
                          "pooling must come before, or stride must be 1");
    out[i] = a[i] / b[i];
  }
  return out;
}

}  // namespace

Triple output_stride(const Triple& in, const Triple& step, RelationKind kind,
                     std::string_view operation) {
  return offsets_start_at_zero(kind) ? quotient(in, step, operation) : product(in, step, operation);
}

mx::array keep_active(const mx::array& rows, const std::optional<mx::array>& active_rows,
                      std::string_view operation) {
  if (!active_rows) return rows;
  if (active_rows->shape() != mx::Shape{1} || active_rows->dtype() != mx::int32)
    fail(operation, "active_rows must be an int32 array of shape (1,), got " +
                        graph::dtype_name(active_rows->dtype()) + " of shape " +
                        shape_text(active_rows->shape()));
  const int n = evaluated(*active_rows, operation, "active_rows").data<int32_t>()[0];
  if (n < 0 || n > rows.shape(0))
    fail(operation, "active_rows must be in 0.." + std::to_string(rows.shape(0)) + ", got " +
                        std::to_string(n));
  return n == rows.shape(0) ? rows : mx::slice(rows, {0, 0}, {n, rows.shape(1)});
}

CoordinateManager::CoordinateManager(size_t budget) : id_(next_manager_id()), budget_(budget) {}

std::shared_ptr<CoordinateManager> CoordinateManager::create(size_t budget) {
  return std::shared_ptr<CoordinateManager>(new CoordinateManager(budget));
}

CoordinateMapKey CoordinateManager::insert_coords(const mx::array& coords, const Triple& stride,
                                                  const std::optional<mx::array>& active_rows,
                                                  std::string_view operation) {
  const std::string op(operation);
  check_stride(stride, op);
  if (!active_rows) {
    std::lock_guard lock(mutex_);
    if (const auto found = by_array_.find({coords.id(), stride}); found != by_array_.end())
      return found->second;
  }
  if (coords.ndim() == 2)
    return insert_set(CoordinateSet(keep_active(coords, active_rows, op), op), stride);
  return insert_set(CoordinateSet(coords, op), stride);
}

CoordinateMapKey CoordinateManager::insert_set(const CoordinateSet& set, const Triple& stride) {
  check_stride(stride, "CoordinateManager.insert_set");
  std::lock_guard lock(mutex_);
  return insert_locked(set, stride);
}

CoordinateMapKey CoordinateManager::insert_locked(const CoordinateSet& set, const Triple& stride) {
  const auto slot = std::pair(set.array().id(), stride);
  if (const auto found = by_array_.find(slot); found != by_array_.end()) return found->second;
  const CoordinateMapKey key{next_id_++, stride, id_};
  sets_.emplace(key, set);
  by_array_.emplace(slot, key);
  return key;
}

bool CoordinateManager::owns(const CoordinateMapKey& key) const {
  std::lock_guard lock(mutex_);
  return sets_.contains(key);
}

const CoordinateSet& CoordinateManager::set_locked(const CoordinateMapKey& key) const {
  const auto found = sets_.find(key);
  if (found == sets_.end())
    fail("CoordinateManager", "key " + std::to_string(key.id) + " of manager " +
                                  std::to_string(key.manager_id) + " does not belong to manager " +
                                  std::to_string(id_));
  return found->second;
}

const CoordinateSet& CoordinateManager::set(const CoordinateMapKey& key) const {
  std::lock_guard lock(mutex_);
  return set_locked(key);  // nodes of a std::map never move, and sets are never erased
}

mx::array CoordinateManager::active_rows(const CoordinateMapKey& key) const {
  return mx::array({static_cast<int32_t>(set(key).rows())}, {1}, mx::int32);
}

mx::array CoordinateManager::inverse_map(const CoordinateMapKey& source,
                                         const CoordinateMapKey& target) const {
  const std::string op = "CoordinateManager.inverse_map";
  const CoordinateSet& from = set(target);
  const CoordinateSet& to = set(source);
  check_same_dtype(to, from, op, "source and target");
  const Triple ratio = quotient(source.stride, target.stride, op);
  cpu::Buffer<std::byte> scaled(from.rows() * 4 * (from.span().is64 ? 8 : 4));
  cpu::floor_coords(from.span(), ratio, scaled.data());
  const cpu::CoordIndex queries = cpu::index_coords({scaled.data(), from.rows(), from.span().is64});
  cpu::Buffer<int32_t> rows = cpu::lookup(*to.index(), queries);
  return adopt(std::move(rows), {static_cast<int>(from.rows())});
}

Relation::Ptr CoordinateManager::relation(RelationKind kind, const CoordinateMapKey& in,
                                          const std::optional<CoordinateMapKey>& target,
                                          const KernelSpec& spec, std::string_view operation,
                                          const RelationBuilder& build) {
  // One builder at a time: the kernels use all threads, and equal requests must give one object.
  std::lock_guard lock(mutex_);
  const CacheKey key{in.id, target ? target->id : -1, spec, kind};
  const CoordinateSet in_set = set_locked(in);
  std::optional<CoordinateSet> target_set;
  if (target) target_set = set_locked(*target);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->made.relation;
  }
  ++misses_;
  const Triple out_stride = output_stride(in.stride, spec.stride, kind, operation);
  if (target && target->stride != out_stride)
    fail(operation, "target must have stride " + triple_text(out_stride) + ", got " +
                        triple_text(target->stride));
  Relation::Fresh relation;
  if (const auto made = made_keys_.find(key); made != made_keys_.end()) {
    // The coordinates exist: relate onto them, so that the key stays the same.
    const CoordinateSet& out = set_locked(made->second);
    const auto onto =
        offsets_start_at_zero(kind) ? RelationKind::target_transposed : RelationKind::target;
    relation = out.same_as(in_set) ? build(kind, in_set, spec, std::nullopt, operation)
                                   : build(onto, in_set, spec, out, operation);
    relation->kind_ = kind;
    relation->out_key_ = made->second;
  } else {
    relation = build(kind, in_set, spec, target_set, operation);
    if (target) {
      relation->out_key_ = *target;
    } else if (kind == RelationKind::submanifold) {
      relation->out_key_ = in;
    } else if (relation->out_coords().same_as(in_set)) {
      // A new key even at stride 1: another set with the same rows.
      const CoordinateMapKey fresh{next_id_++, out_stride, id_};
      sets_.emplace(fresh, in_set);
      relation->out_key_ = fresh;
      made_keys_.emplace(key, fresh);
    } else {
      relation->out_key_ = insert_locked(relation->out_coords(), out_stride);
      made_keys_.emplace(key, *relation->out_key_);
    }
  }
  entries_.push_front({key, {in, target, relation}, misses_});
  by_key_[key] = entries_.begin();
  evict_locked();
  return relation;
}

Relation::Ptr CoordinateManager::kernel_relation(const CoordinateMapKey& in,
                                                 const KernelSpec& spec) {
  return relation(RelationKind::forward, in, std::nullopt, spec, "kernel_relation");
}
Relation::Ptr CoordinateManager::submanifold_kernel_relation(const CoordinateMapKey& in,
                                                             const KernelSpec& spec) {
  return relation(RelationKind::submanifold, in, std::nullopt, spec, "submanifold_kernel_relation");
}
Relation::Ptr CoordinateManager::target_kernel_relation(const CoordinateMapKey& in,
                                                        const CoordinateMapKey& target,
                                                        const KernelSpec& spec) {
  return relation(RelationKind::target, in, target, spec, "target_kernel_relation");
}
Relation::Ptr CoordinateManager::transposed_kernel_relation(const CoordinateMapKey& in,
                                                            const KernelSpec& spec) {
  return relation(RelationKind::transposed, in, std::nullopt, spec, "transposed_kernel_relation");
}
Relation::Ptr CoordinateManager::generative_relation(const CoordinateMapKey& in,
                                                     const KernelSpec& spec) {
  return relation(RelationKind::generative, in, std::nullopt, spec, "generative_relation");
}
Relation::Ptr CoordinateManager::target_transposed_relation(const CoordinateMapKey& in,
                                                            const CoordinateMapKey& target,
                                                            const KernelSpec& spec) {
  return relation(RelationKind::target_transposed, in, target, spec, "target_transposed_relation");
}

AttentionLayout::Ptr CoordinateManager::layout(const CoordinateMapKey& key, const LayoutSpec& spec,
                                               std::string_view operation) {
  std::lock_guard lock(mutex_);
  const auto slot = std::pair(key, spec);
  if (const auto found = layouts_.find(slot); found != layouts_.end()) {
    ++hits_;
    return found->second;
  }
  ++misses_;
  const AttentionLayout::Ptr made = AttentionLayout::make(set_locked(key), spec, operation);
  layouts_.emplace(slot, made);
  evict_locked();
  return made;
}

GridPooling::Ptr CoordinateManager::pooling(const CoordinateMapKey& key, Curve curve, int log2,
                                            std::string_view operation) {
  std::lock_guard lock(mutex_);
  const auto slot = std::tuple(key, curve, log2);
  if (const auto found = poolings_.find(slot); found != poolings_.end()) {
    ++hits_;
    return found->second;
  }
  ++misses_;
  PooledCoords pooled = pool_coords(set_locked(key), curve, log2, operation);
  auto out = pooled_keys_.find(slot);  // the same blocks in the same order: the key stays
  if (out == pooled_keys_.end()) {
    const Triple by{pooled.stride, pooled.stride, pooled.stride};
    const CoordinateMapKey made = insert_locked(pooled.coords, product(key.stride, by, operation));
    out = pooled_keys_.emplace(slot, made).first;
  }
  const auto made = std::make_shared<const GridPooling>(
      GridPooling{key, out->second, std::move(pooled.clusters)});
  poolings_.emplace(slot, made);
  evict_locked();
  return made;
}

size_t CoordinateManager::bytes_locked() const {
  size_t bytes = 0;
  for (const auto& [key, layout] : layouts_) bytes += layout->nbytes();
  for (const auto& [key, pooling] : poolings_) bytes += static_cast<size_t>(pooling->nbytes());
  for (const Entry& entry : entries_) bytes += entry.made.relation->nbytes();
  return bytes;
}

// The newest entry stays even when it is larger than the budget.
void CoordinateManager::evict_locked() {
  size_t bytes = bytes_locked();
  if (bytes > budget_ && layouts_.size() + poolings_.size() > 1) {
    evictions_ += static_cast<int64_t>(layouts_.size() + poolings_.size());
    layouts_.clear();
    poolings_.clear();
    bytes = bytes_locked();
  }
  while (bytes > budget_ && entries_.size() > 1) {
    bytes -= std::min(bytes, entries_.back().made.relation->nbytes());
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
    ++evictions_;
  }
}

CacheStats CoordinateManager::stats() const {
  std::lock_guard lock(mutex_);
  return {hits_,
          misses_,
          evictions_,
          static_cast<int64_t>(entries_.size()),
          static_cast<int64_t>(sets_.size()),
          bytes_locked(),
          budget_};
}

std::vector<CachedRelation> CoordinateManager::relations() const {
  std::lock_guard lock(mutex_);
  std::vector<const Entry*> order;
  for (const Entry& entry : entries_) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->number < b->number; });
  std::vector<CachedRelation> made;
  made.reserve(order.size());
  for (const Entry* entry : order) made.push_back(entry->made);
  return made;
}

void CoordinateManager::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  by_key_.clear();
  layouts_.clear();
  poolings_.clear();
}

void CoordinateManager::set_budget(size_t bytes) {
  std::lock_guard lock(mutex_);
  budget_ = bytes;
  evict_locked();
}

}  // namespace lattice
