#include "lattice/kernels/cpu/geometry/neighbors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/geometry/neighbor_group.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/geometry/neighbors.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/geometry/neighbors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

void search_float(const Side<float>& s, const KdTree& t, const Side<float>& q, int64_t leaf,
                  float reach, Group& g) {
  search_leaf(s, t, q, leaf, reach, g);
}
void search_double(const Side<double>& s, const KdTree& t, const Side<double>& q, int64_t leaf,
                   float reach, Group& g) {
  search_leaf(s, t, q, leaf, reach, g);
}
void search_integer(const Side<int64_t>& s, const KdTree& t, const Side<int64_t>& q, int64_t leaf,
                    float reach, Group& g) {
  search_leaf(s, t, q, leaf, reach, g);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {

HWY_EXPORT(search_float);
HWY_EXPORT(search_double);
HWY_EXPORT(search_integer);

// Searches the queries of leaf `leaf` in a tree; results are in `g`, sorted. Dispatched at every
// call: the first call of a process has no address that could be kept.
template <typename T>
void search_leaf(const Side<T>& source, const KdTree& tree, const Side<T>& query, int64_t leaf,
                 float reach, Group& g) {
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(search_float)(source, tree, query, leaf, reach, g);
  else if constexpr (std::is_same_v<T, double>)
    HWY_DYNAMIC_DISPATCH(search_double)(source, tree, query, leaf, reach, g);
  else
    HWY_DYNAMIC_DISPATCH(search_integer)(source, tree, query, leaf, reach, g);
}

constexpr int64_t kTask = 32;  // leaves of queries

// Sum of the counts before each row; throws when it leaves int32.
void sum_offsets(Buffer<int32_t>& offsets, int64_t n) {
  int64_t total = 0;
  for (int64_t q = 0; q < n; ++q) {
    total += std::exchange(offsets[q], static_cast<int32_t>(total));
    if (total > std::numeric_limits<int32_t>::max())
      throw std::length_error(
          "found more than 2^31 - 1 neighbors; reduce the radius, k or max_neighbors");
  }
  offsets[n] = static_cast<int32_t>(total);
}

// Found neighbors of one task, query after query in leaf order.
struct Part {
  std::vector<int32_t> sources;
  std::vector<float> distances;
  int64_t truncated = 0;
};

// Asks for the memory where the results of a leaf's queries will go. Neighboring queries may have
// rows far apart, and waiting for their memory took a quarter of the search.
void expect_results(const int32_t* queries, const Neighbors& out) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  constexpr int64_t kLineValues = 16;
  for (int64_t q = 0; q < kLeaf; ++q) {
    if (queries[q] < 0) continue;
    const int64_t begin = out.offsets[queries[q]];
    const int64_t end = std::min<int64_t>(out.offsets[queries[q] + 1], begin + 4 * kLineValues);
    for (int64_t i = begin; i < end + kLineValues - 1; i += kLineValues) {
      const int64_t at = std::min(i, end - 1);
      __builtin_prefetch(out.sources.data() + at, 1);
      __builtin_prefetch(out.distances.data() + at, 1);
    }
  }
#endif
  (void)queries;
  (void)out;
}

// Makes room for the counts in the offsets.
void make_room(Neighbors& out, int64_t n_query) {
  sum_offsets(out.offsets, n_query);
  out.sources = Buffer<int32_t>(out.offsets[n_query]);
  out.distances = Buffer<float>(out.offsets[n_query]);
}

// Joins what the tasks found, where the number of neighbors was not known before.
template <typename T>
void join_parts(const std::vector<Part>& parts, const Side<T>& query, int64_t n_query,
                Neighbors& out) {
  make_room(out, n_query);
  const int64_t leaves = query.forest.leaves();
  parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t task) {
    const Part& part = parts[static_cast<size_t>(task)];
    int64_t from = 0;
    for (int64_t p = task * kTask * kLeaf; p < std::min(leaves, (task + 1) * kTask) * kLeaf; ++p) {
      const int32_t row = query.forest.rows[p];
      if (row < 0) continue;
      const int64_t count = out.offsets[row + 1] - out.offsets[row];
      std::copy_n(part.sources.begin() + from, count, out.sources.begin() + out.offsets[row]);
      std::copy_n(part.distances.begin() + from, count, out.distances.begin() + out.offsets[row]);
      from += count;
    }
  });
  for (const Part& part : parts) out.truncated += part.truncated;
}

template <typename T>
Neighbors search_all(const Side<T>& source, const Side<T>& query, int64_t n_query,
                     const NeighborQuery& wanted) {
  const bool shrink = !wanted.reach;
  const int64_t leaves = query.forest.leaves(), tasks = (leaves + kTask - 1) / kTask;
  // The source tree of each query tree, for its leaves.
  std::vector<const KdTree*> tree_of(static_cast<size_t>(leaves));
  Neighbors out;
  out.offsets = Buffer<int32_t>(n_query + 1);
  for (const KdTree& tree : query.forest.trees) {
    const KdTree* found = source.forest.find(tree.batch);
    std::fill_n(tree_of.begin() + tree.first_leaf, tree.leaves, found);
    const int64_t count = found ? std::min(wanted.limit, found->rows) : 0;
    for (int64_t p = tree.first_leaf * kLeaf; p < tree.first_leaf * kLeaf + tree.rows; ++p)
      out.offsets[query.forest.rows[p]] = static_cast<int32_t>(count);
  }
  if (shrink) make_room(out, n_query);  // the number of neighbors is known
  std::vector<Part> parts(static_cast<size_t>(shrink ? 0 : tasks));
  parallel_for(tasks, [&](int64_t task) {
    Group g;
    g.limit = wanted.limit;
    g.shrink = shrink;
    g.resize(shrink ? std::min(2 * wanted.limit, wanted.limit + 1024) + kLeaf : 8 * kLeaf);
    for (int64_t leaf = task * kTask; leaf < std::min(leaves, (task + 1) * kTask); ++leaf) {
      const KdTree* tree = tree_of[static_cast<size_t>(leaf)];
      if (!tree) continue;
      if (shrink) expect_results(query.forest.rows.data() + leaf * kLeaf, out);
      search_leaf(source, *tree, query, leaf, wanted.reach.value_or(kInfinity), g);
      for (int64_t q = 0; q < kLeaf; ++q) {
        const int32_t row = query.forest.rows[leaf * kLeaf + q];
        if (row < 0) continue;
        const float* d2 = g.d2.data() + q * g.capacity;
        const int32_t* rows = g.rows.data() + q * g.capacity;
        const int64_t keep = std::min(g.count[q], wanted.limit);
        if (shrink) {
          std::copy_n(rows, keep, out.sources.begin() + out.offsets[row]);
          std::copy_n(d2, keep, out.distances.begin() + out.offsets[row]);
        } else {
          Part& part = parts[static_cast<size_t>(task)];
          part.sources.insert(part.sources.end(), rows, rows + keep);
          part.distances.insert(part.distances.end(), d2, d2 + keep);
          part.truncated += g.count[q] - keep;
          out.offsets[row] = static_cast<int32_t>(keep);
        }
      }
    }
  });
  if (!shrink) join_parts(parts, query, n_query, out);
  return out;
}

}  // namespace

float squared_reach(float radius) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float reach = radius * radius;  // some steps of float32 away from what is asked for
  while (std::sqrt(reach) > radius) reach = std::nextafter(reach, 0.0f);
  while (reach < kInfinity && std::sqrt(std::nextafter(reach, kInfinity)) <= radius)
    reach = std::nextafter(reach, kInfinity);
  return reach;
}

NeighborTree::NeighborTree(const Places& places)
    : places_(places), box_(places.box()), forest_(build_forest(places)) {
  for (size_t a = 0; a < 3 && !box_.empty(); ++a) base_[a] = static_cast<int64_t>(box_.lo[a + 1]);
}

template <typename T>
const LeafPoints<T>& NeighborTree::points(Lazy<T>& lazy) const {
  std::call_once(lazy.once, [&] { lazy.points = leaf_points<T>(places_, forest_, base_); });
  return lazy.points;
}

Neighbors NeighborTree::search(const Places& queries, const KdForest& forest, bool own,
                               const NeighborQuery& query) const {
  const auto with = [&]<typename T>(Lazy<T>& lazy) {
    const LeafPoints<T>& sources = points(lazy);
    if (own) return search_all<T>({forest_, sources}, {forest_, sources}, queries.n, query);
    const LeafPoints<T> asked = leaf_points<T>(queries, forest, base_);
    return search_all<T>({forest_, sources}, {forest, asked}, queries.n, query);
  };
  if (places_.points || queries.points) return with(floats_);
  const Box both = box_.joined(queries.box());
  int128 widest = 0;
  for (size_t a = 1; a < 4; ++a) widest = std::max(widest, both.hi[a] - both.lo[a]);
  if (widest < (1 << 11)) return with(floats_);
  return widest < (1 << 25) ? with(doubles_) : with(integers_);
}

Neighbors NeighborTree::search(const NeighborQuery& query) const {
  return search(places_, forest_, true, query);
}

Neighbors NeighborTree::search(const Places& queries, const NeighborQuery& query) const {
  return search(queries, build_forest(queries), false, query);
}

size_t NeighborTree::nbytes() const { return forest_.rows.nbytes(); }

}  // namespace lattice::cpu
#endif
