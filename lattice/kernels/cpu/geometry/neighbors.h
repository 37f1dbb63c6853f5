// Exact neighbors: the k nearest rows, or all rows within a radius, of the same batch.
//
//   points:       d2 = (dx * dx + dy * dy) + dz * dz, each operation rounded to float32
//   coordinates:  d2 is exact and rounded once to float32
//
// Neighbors of a query are ordered by (d2, row). The bound of a box is computed with the same
// operations, which are monotone, so no neighbor is ever cut off by rounding.
//
// Queries are sorted into leaves like the sources. The queries of a leaf walk down the source tree
// together, and skip a node that no query wants. Leaves are compared as vectors.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "lattice/kernels/cpu/geometry/kdtree.h"

namespace lattice::cpu {

// Neighbors of query row q: sources[offsets[q] .. offsets[q + 1]], nearest first.
struct Neighbors {
  Buffer<int32_t> offsets;
  Buffer<int32_t> sources;
  Buffer<float> distances;
  int64_t truncated = 0;  // left out because of `limit`
};

// The largest d2 with sqrt(d2) <= radius in float32. "Within a radius" means this everywhere.
// radius * radius would be below 2 and 3 for the roots of 2 and 3 and lose the diagonal neighbors
// of a lattice.
float squared_reach(float radius);

// Asks for the nearest `limit` rows, and of these only those with d2 <= reach.
struct NeighborQuery {
  int64_t limit = 0;           // >= 1
  std::optional<float> reach;  // squared_reach of the radius; truncated counts what limit cuts off
};

// Sorted rows, built once and used by any number of threads. The memory that `places` names must
// live as long.
class NeighborTree {
 public:
  explicit NeighborTree(const Places& places);
  // Throws std::length_error when there are 2^31 neighbors or more.
  Neighbors search(const NeighborQuery& query) const;  // of its own rows
  Neighbors search(const Places& queries,
                   const NeighborQuery& query) const;  // both points, or both coordinates
  int64_t rows() const { return places_.n; }
  size_t nbytes() const;

 private:
  template <typename T>
  struct Lazy {
    std::once_flag once;
    LeafPoints<T> points;
  };
  template <typename T>
  const LeafPoints<T>& points(Lazy<T>& lazy) const;
  Neighbors search(const Places& queries, const KdForest& forest, bool own,
                   const NeighborQuery& query) const;

  Places places_;
  Box box_;
  KdForest forest_;
  std::array<int64_t, 3> base_{};
  mutable Lazy<float> floats_;
  mutable Lazy<double> doubles_;
  mutable Lazy<int64_t> integers_;
};

}  // namespace lattice::cpu
