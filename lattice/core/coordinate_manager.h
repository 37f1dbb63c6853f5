/// @file
/// The manager owns coordinate sets and caches the relations between them.
#pragma once

#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "lattice/core/layouts.h"
#include "lattice/core/relation.h"

namespace lattice {

/// What a manager holds, and how often it could reuse it.
struct CacheStats {
  int64_t hits = 0;             ///< requests that found a relation
  int64_t misses = 0;           ///< requests that built one
  int64_t evictions = 0;        ///< relations that left because of the budget
  int64_t relations = 0;        ///< relations in the cache now
  int64_t coordinate_sets = 0;  ///< coordinate sets that keys name
  size_t bytes = 0;             ///< bytes of what is cached
  size_t budget = 0;            ///< bytes that the cache may take
};

/// A cached relation with the arguments that made it.
struct CachedRelation {
  CoordinateMapKey in;                     ///< the input coordinates
  std::optional<CoordinateMapKey> target;  ///< the output coordinates, if they were given
  Relation::Ptr relation;                  ///< what was built
};

/// Builds a relation by the route that is chosen: relation_builder() of ops/relations.h.
using RelationBuilder = std::function<Relation::Fresh(
    RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
    const std::optional<CoordinateSet>& target, std::string_view operation)>;

/// Relations are cached by (input key, target key, spec, kind): equal arguments give the same
/// object. Above the byte budget the least recently used ones leave the cache; an object that
/// somebody still holds stays valid. Output coordinates stay, so that a relation built again has
/// the same output key. Layouts of attention and poolings of blocks are kept by (key, arguments)
/// too. Their bytes count too, and all of them leave the cache before a relation does.
///
/// All methods may be called from several threads. Nothing is built while the mutex is held.
/// Threads that ask for the same thing at the same time wait for the one that builds it; if that
/// throws, all of them throw, and the next one that asks builds again.
class LATTICE_API CoordinateManager : public std::enable_shared_from_this<CoordinateManager> {
 public:
  /// Bytes of relations that a manager keeps unless it is told otherwise: 2 GiB.
  static constexpr size_t kDefaultBudget = size_t{2} << 30;
  /// A new manager without coordinates; the only way to make one.
  static std::shared_ptr<CoordinateManager> create(size_t budget = kDefaultBudget);

  /// The id of this manager, unique within the process.
  int64_t id() const { return id_; }

  /// The same array object with the same stride gives the same key. `active_rows`, a (1,) int32
  /// array, keeps that many rows.
  CoordinateMapKey insert_coords(const mx::array& coords, const Triple& stride,
                                 const std::optional<mx::array>& active_rows = std::nullopt,
                                 std::string_view operation = "CoordinateManager.insert_coords");
  /// The key of a set; inserts the set unless the manager has it at this stride.
  CoordinateMapKey insert_set(const CoordinateSet& set, const Triple& stride);
  /// Whether the key was made by this manager.
  bool owns(const CoordinateMapKey& key) const;
  /// The coordinates that the key names. Throws std::invalid_argument for a foreign key.
  const CoordinateSet& set(const CoordinateMapKey& key) const;
  /// The same as an array (N, 4).
  const mx::array& coords(const CoordinateMapKey& key) const { return set(key).array(); }
  /// (1,) int32: the number of rows.
  mx::array active_rows(const CoordinateMapKey& key) const;
  /// The bounds that the key was made with, if any: `with_bounds`, or a relation of a reached kind.
  std::optional<Bounds> bounds(const CoordinateMapKey& key) const;
  /// A key of the same rows with these bounds: the key itself if it has them already. Equal
  /// arguments give the same key. Throws std::invalid_argument unless low < high on every axis.
  CoordinateMapKey with_bounds(const CoordinateMapKey& key, const Bounds& bounds);

  /// The relation of a kind, from the cache or built by `build`. Messages begin with `operation`.
  Relation::Ptr relation(RelationKind kind, const CoordinateMapKey& in,
                         const std::optional<CoordinateMapKey>& target, const KernelSpec& spec,
                         std::string_view operation, const RelationBuilder& build);

  /// The layout of a set; equal arguments give the same object.
  AttentionLayout::Ptr layout(const CoordinateMapKey& key, const LayoutSpec& spec,
                              std::string_view operation);
  /// The blocks of cells of a set, with the key of their coordinates.
  GridPooling::Ptr pooling(const CoordinateMapKey& key, const PoolingSpec& spec,
                           std::string_view operation);

  /// Counts since the manager was made, and what it holds now.
  CacheStats stats() const;
  /// What is cached now, in the order in which it was built.
  std::vector<CachedRelation> relations() const;
  /// Drops the cached relations, layouts and poolings; keys and coordinates stay.
  void clear();
  /// Changes the budget and evicts at once what exceeds it.
  void set_budget(size_t bytes);

 private:
  explicit CoordinateManager(size_t budget);
  struct CacheKey {
    int64_t in, target;
    KernelSpec spec;
    RelationKind kind;
    auto operator<=>(const CacheKey&) const = default;
  };
  struct Entry {
    CacheKey key;
    CachedRelation made;
    int64_t number;  ///< in the order of building
  };

  const CoordinateSet& set_locked(const CoordinateMapKey& key) const;
  CoordinateMapKey insert_locked(const CoordinateSet& set, const Triple& stride);
  // The key of output rows that a relation of `in` made.
  CoordinateMapKey made_key_locked(const CoordinateSet& out, const CoordinateSet& in,
                                   const Triple& stride);
  size_t bytes_locked() const;
  void evict_locked();
  // Returns what is cached for `key`. If another thread is making it, waits for that thread;
  // otherwise makes it here. find() and keep() run under the lock: find() gives null if nothing is
  // cached, and keep(made, number) returns what is now cached. make() runs without the lock.
  template <class Key, class Ptr, class Find, class Make, class Keep>
  Ptr made_once(std::map<Key, std::shared_future<Ptr>>& pending, const Key& key, const Find& find,
                const Make& make, const Keep& keep);

  const int64_t id_;
  mutable std::mutex mutex_;
  size_t budget_;
  std::map<CoordinateMapKey, CoordinateSet> sets_;
  std::map<std::pair<std::uintptr_t, Triple>, CoordinateMapKey> by_array_;
  std::map<CacheKey, CoordinateMapKey>
      made_keys_;             ///< output keys of relations that made coordinates
  std::list<Entry> entries_;  ///< most recently used first
  std::map<CacheKey, std::list<Entry>::iterator> by_key_;
  std::map<int64_t, Bounds> bounds_;  ///< of keys that have some, by id
  std::map<std::pair<int64_t, Bounds>, CoordinateMapKey> bounded_keys_;
  using LayoutKey = std::pair<CoordinateMapKey, LayoutSpec>;
  using PoolingKey = std::pair<CoordinateMapKey, PoolingSpec>;
  std::map<LayoutKey, AttentionLayout::Ptr> layouts_;
  std::map<PoolingKey, GridPooling::Ptr> poolings_;
  std::map<PoolingKey, CoordinateMapKey> pooled_keys_;
  // What a thread is building at the moment.
  std::map<CacheKey, std::shared_future<Relation::Ptr>> pending_relations_;
  std::map<LayoutKey, std::shared_future<AttentionLayout::Ptr>> pending_layouts_;
  std::map<PoolingKey, std::shared_future<GridPooling::Ptr>> pending_poolings_;
  int64_t next_id_ = 0;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

/// @cond internal
/// in * step for gathering kinds; in / step for scattering ones, where step must divide.
Triple output_stride(const Triple& in, const Triple& step, RelationKind kind,
                     std::string_view operation);

/// coords without the rows behind `active_rows`; checks its shape, dtype and range.
mx::array keep_active(const mx::array& rows, const std::optional<mx::array>& active_rows,
                      std::string_view operation);
/// @endcond

}  // namespace lattice
