// Owner of coordinate sets, and cache of the relations between them.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "lattice/core/attention_layout.h"
#include "lattice/core/grid_pooling.h"
#include "lattice/core/relation.h"

namespace lattice {

struct CacheStats {
  int64_t hits = 0, misses = 0, evictions = 0;
  int64_t relations = 0, coordinate_sets = 0;
  size_t bytes = 0, budget = 0;
};

// A cached relation with the arguments that made it.
struct CachedRelation {
  CoordinateMapKey in;
  std::optional<CoordinateMapKey> target;
  Relation::Ptr relation;
};

// Builds a relation: relate() of core, or the row of the table of routes that is chosen.
using RelationBuilder = std::function<Relation::Fresh(
    RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
    const std::optional<CoordinateSet>& target, std::string_view operation)>;

// Relations are cached by (input key, target key, spec, kind): equal arguments give the same
// object. Above the byte budget the least recently used ones leave the cache; whoever holds one
// keeps it. Output coordinates stay, so that a relation built again has the same output key.
// Layouts of attention and poolings of blocks are kept by (key, arguments) too. They count as
// bytes, and all of them leave before a relation does. All methods may be called from several
// threads.
class CoordinateManager : public std::enable_shared_from_this<CoordinateManager> {
 public:
  static constexpr size_t kDefaultBudget = size_t{2} << 30;
  static std::shared_ptr<CoordinateManager> create(size_t budget = kDefaultBudget);

  int64_t id() const { return id_; }

  // The same array object with the same stride gives the same key. `active_rows`, a (1,) int32
  // array, keeps that many rows.
  CoordinateMapKey insert_coords(const mx::array& coords, const Triple& stride,
                                 const std::optional<mx::array>& active_rows = std::nullopt,
                                 std::string_view operation = "CoordinateManager.insert_coords");
  CoordinateMapKey insert_set(const CoordinateSet& set, const Triple& stride);
  bool owns(const CoordinateMapKey& key) const;
  const CoordinateSet& set(const CoordinateMapKey& key) const;
  const mx::array& coords(const CoordinateMapKey& key) const { return set(key).array(); }
  // (1,) int32: the number of rows.
  mx::array active_rows(const CoordinateMapKey& key) const;
  // For each source row the target row that holds it, or -1. At equal strides that row has equal
  // coordinates. Where the target's stride is a multiple of the source's, the row has floor(source
  // / ratio).
  mx::array inverse_map(const CoordinateMapKey& source, const CoordinateMapKey& target) const;

  // The relation of a kind, from the cache or built by `build`. `operation` heads messages.
  Relation::Ptr relation(RelationKind kind, const CoordinateMapKey& in,
                         const std::optional<CoordinateMapKey>& target, const KernelSpec& spec,
                         std::string_view operation, const RelationBuilder& build = relate);
  // The same, one name per kind.
  Relation::Ptr kernel_relation(const CoordinateMapKey& in, const KernelSpec& spec);
  Relation::Ptr submanifold_kernel_relation(const CoordinateMapKey& in, const KernelSpec& spec);
  Relation::Ptr target_kernel_relation(const CoordinateMapKey& in, const CoordinateMapKey& target,
                                       const KernelSpec& spec);
  Relation::Ptr transposed_kernel_relation(const CoordinateMapKey& in, const KernelSpec& spec);
  Relation::Ptr generative_relation(const CoordinateMapKey& in, const KernelSpec& spec);
  Relation::Ptr target_transposed_relation(const CoordinateMapKey& in,
                                           const CoordinateMapKey& target, const KernelSpec& spec);

  // The layout of a set, and its blocks of 2^log2 cells with the key of their coordinates.
  AttentionLayout::Ptr layout(const CoordinateMapKey& key, const LayoutSpec& spec,
                              std::string_view operation);
  GridPooling::Ptr pooling(const CoordinateMapKey& key, Curve curve, int log2,
                           std::string_view operation);

  CacheStats stats() const;
  // What is cached now, in the order in which it was built.
  std::vector<CachedRelation> relations() const;
  // Drops the cached relations, layouts and poolings; keys and coordinates stay.
  void clear();
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
    int64_t number;  // in the order of building
  };

  const CoordinateSet& set_locked(const CoordinateMapKey& key) const;
  CoordinateMapKey insert_locked(const CoordinateSet& set, const Triple& stride);
  size_t bytes_locked() const;
  void evict_locked();

  const int64_t id_;
  mutable std::mutex mutex_;
  size_t budget_;
  std::map<CoordinateMapKey, CoordinateSet> sets_;
  std::map<std::pair<std::uintptr_t, Triple>, CoordinateMapKey> by_array_;
  std::map<CacheKey, CoordinateMapKey>
      made_keys_;             // output keys of relations that made coordinates
  std::list<Entry> entries_;  // most recently used first
  std::map<CacheKey, std::list<Entry>::iterator> by_key_;
  std::map<std::pair<CoordinateMapKey, LayoutSpec>, AttentionLayout::Ptr> layouts_;
  std::map<std::tuple<CoordinateMapKey, Curve, int>, GridPooling::Ptr> poolings_;
  std::map<std::tuple<CoordinateMapKey, Curve, int>, CoordinateMapKey> pooled_keys_;
  int64_t next_id_ = 0;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

// in * step for gathering kinds; in / step for scattering ones, where step must divide.
Triple output_stride(const Triple& in, const Triple& step, RelationKind kind,
                     std::string_view operation);

// coords without the rows behind `active_rows`; checks its shape, dtype and range.
mx::array keep_active(const mx::array& rows, const std::optional<mx::array>& active_rows,
                      std::string_view operation);

}  // namespace lattice
