#include "lattice/core/coordinate_manager.h"

#include <mlx/ops.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/reached.h"

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
  return scatters(kind) ? quotient(in, step, operation) : product(in, step, operation);
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

CoordinateMapKey CoordinateManager::made_key_locked(const CoordinateSet& out,
                                                    const CoordinateSet& in, const Triple& stride) {
  if (!out.same_as(in)) return insert_locked(out, stride);
  // A new key even at stride 1: another set with the same rows.
  const CoordinateMapKey fresh{next_id_++, stride, id_};
  sets_.emplace(fresh, in);
  return fresh;
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

std::optional<Bounds> CoordinateManager::bounds(const CoordinateMapKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = bounds_.find(key.id);
  return found == bounds_.end() ? std::nullopt : std::optional(found->second);
}

CoordinateMapKey CoordinateManager::with_bounds(const CoordinateMapKey& key, const Bounds& bounds) {
  for (size_t a = 0; a < 3; ++a)
    if (bounds.low[a] >= bounds.high[a])
      fail("with_bounds", "low must be below high on every axis, got " + bounds_text(bounds));
  std::lock_guard lock(mutex_);
  const CoordinateSet& rows = set_locked(key);
  if (const auto has = bounds_.find(key.id); has != bounds_.end() && has->second == bounds)
    return key;
  const auto slot = std::pair(key.id, bounds);
  if (const auto found = bounded_keys_.find(slot); found != bounded_keys_.end())
    return found->second;
  const CoordinateMapKey made{next_id_++, key.stride, id_};
  sets_.emplace(made, rows);
  bounds_.emplace(made.id, bounds);
  bounded_keys_.emplace(slot, made);
  return made;
}

template <class Key, class Ptr, class Find, class Make, class Keep>
Ptr CoordinateManager::made_once(std::map<Key, std::shared_future<Ptr>>& pending, const Key& key,
                                 const Find& find, const Make& make, const Keep& keep) {
  std::promise<Ptr> promise;
  int64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    if (const Ptr kept = find()) {
      ++hits_;
      return kept;
    }
    if (const auto found = pending.find(key); found != pending.end()) {
      ++hits_;
      const std::shared_future<Ptr> other = found->second;
      lock.unlock();
      return other.get();
    }
    number = ++misses_;
    pending.emplace(key, promise.get_future().share());
  }
  try {
    auto made = make();
    std::unique_lock lock(mutex_);
    const Ptr kept = keep(std::move(made), number);
    pending.erase(key);
    evict_locked();
    lock.unlock();
    promise.set_value(kept);
    return kept;
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      pending.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

Relation::Ptr CoordinateManager::relation(RelationKind kind, const CoordinateMapKey& in,
                                          const std::optional<CoordinateMapKey>& target,
                                          const KernelSpec& spec, std::string_view operation,
                                          const RelationBuilder& build) {
  const CacheKey key{in.id, target ? target->id : -1, spec, kind};
  const CoordinateSet in_set = set(in);
  std::optional<CoordinateSet> target_set;
  if (target) target_set = set(*target);
  std::optional<CoordinateMapKey> known;  // of the output, which such a relation made before
  const auto find = [&]() -> Relation::Ptr {
    if (const auto made = made_keys_.find(key); made != made_keys_.end()) known = made->second;
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->made.relation;
  };
  Triple out_stride;
  const auto make = [&]() -> Relation::Fresh {
    out_stride = output_stride(in.stride, spec.stride, kind, operation);
    if (target && target->stride != out_stride)
      fail(operation, "target must have stride " + triple_text(out_stride) + ", got " +
                          triple_text(target->stride));
    if (!known) return build(kind, in_set, spec, target_set, operation);
    // The coordinates exist: relate onto them, so that the key stays the same.
    const CoordinateSet& out = set(*known);
    if (out.same_as(in_set)) return build(kind, in_set, spec, std::nullopt, operation);
    const auto onto = scatters(kind)                  ? RelationKind::target_transposed
                      : kind == RelationKind::reached ? kind
                                                      : RelationKind::target;
    return build(onto, in_set, spec, out, operation);
  };
  const auto keep = [&](const Relation::Fresh& relation, int64_t number) -> Relation::Ptr {
    relation->kind_ = kind;
    relation->out_key_ = known    ? *known
                         : target ? *target
                         : kind == RelationKind::submanifold
                             ? in
                             : made_key_locked(relation->out_coords(), in_set, out_stride);
    if (!known && !target && kind != RelationKind::submanifold)
      made_keys_.emplace(key, *relation->out_key_);
    if (is_reached(kind) && !known && !target && spec.bounds)
      bounds_.emplace(relation->out_key_->id,
                      cpu::reached_bounds(*spec.bounds, spec.kernel(false), scatters(kind)));
    entries_.push_front({key, {in, target, relation}, number});
    by_key_[key] = entries_.begin();
    return relation;
  };
  return made_once(pending_relations_, key, find, make, keep);
}

AttentionLayout::Ptr CoordinateManager::layout(const CoordinateMapKey& key, const LayoutSpec& spec,
                                               std::string_view operation) {
  const LayoutKey slot(key, spec);
  const auto find = [&]() -> AttentionLayout::Ptr {
    const auto found = layouts_.find(slot);
    return found == layouts_.end() ? nullptr : found->second;
  };
  const auto make = [&] { return AttentionLayout::make(set(key), spec, operation); };
  const auto keep = [&](const AttentionLayout::Ptr& made, int64_t) {
    layouts_.emplace(slot, made);
    return made;
  };
  return made_once(pending_layouts_, slot, find, make, keep);
}

GridPooling::Ptr CoordinateManager::pooling(const CoordinateMapKey& key, const PoolingSpec& spec,
                                            std::string_view operation) {
  const PoolingKey slot(key, spec);
  const auto find = [&]() -> GridPooling::Ptr {
    const auto found = poolings_.find(slot);
    return found == poolings_.end() ? nullptr : found->second;
  };
  const auto make = [&] { return pool_coords(set(key), spec, operation); };
  const auto keep = [&](PooledCoords pooled, int64_t) {
    auto out = pooled_keys_.find(slot);  // the same blocks in the same order: the key stays
    if (out == pooled_keys_.end()) {
      const Triple by{pooled.stride, pooled.stride, pooled.stride};
      const CoordinateMapKey made =
          insert_locked(pooled.coords, product(key.stride, by, operation));
      out = pooled_keys_.emplace(slot, made).first;
    }
    const auto made = std::make_shared<const GridPooling>(
        GridPooling{key, out->second, std::move(pooled.clusters)});
    poolings_.emplace(slot, made);
    return made;
  };
  return made_once(pending_poolings_, slot, find, make, keep);
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
