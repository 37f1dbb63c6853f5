// Points in the leaves of one balanced kd-tree per batch (Bentley, "Multidimensional binary search
// trees", 1975): a range of points is cut at the median of its longest side until kLeaf are left.
//
// A tree with m leaves has 2 m - 1 nodes in preorder: node i over leaves [a, b) has the children i
// + 1 over [a, mid) and i + 2 (mid - a) over [mid, b), mid = middle(a, b). No pointers are stored.
// Cuts are made on float32 copies; they decide speed only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {

inline constexpr int64_t kLeaf = 32;

// Where rows lie: float points (n, 3) with batches, or integer coordinates (n, 4).
struct Places {
  int64_t n = 0;
  const float* points = nullptr;   // null: coords
  const int32_t* batch = nullptr;  // of points; null: 0
  CoordSpan coords;

  int64_t batch_of(int64_t row) const {
    return points ? (batch ? batch[row] : 0) : coords.at(row, 0);
  }
  Box box() const { return points ? Box{} : bounding_box(coords); }
};

struct KdTree {
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t first_leaf = 0, leaves = 0;
  int64_t first_node() const { return 2 * first_leaf; }  // one slot in 2 * leaves stays free
};

struct KdForest {
  std::vector<KdTree> trees;  // by ascending batch
  Buffer<int32_t> rows;       // kLeaf per leaf, -1 after the last row of a tree
  int64_t leaves() const { return rows.size() / kLeaf; }
  const KdTree* find(int64_t batch) const;
};
KdForest build_forest(const Places& places);

inline int64_t middle(int64_t a, int64_t b) { return a + (b - a + 1) / 2; }

// Coordinates in the order of the leaves, minus `base` (int64_t: as they are), and the boxes of the
// nodes. After the last row of a tree x, y, z are NaN, so no distance to them is small; with
// int64_t they repeat the first row of the leaf.
template <typename T>
struct NodeBox {
  std::array<T, 3> lo, hi;
  int32_t min_row;
};
template <typename T>
struct LeafPoints {
  Buffer<T> axis[3];
  Buffer<NodeBox<T>> boxes;
};
// T: float for points, and for coordinates whose differences are below 2^11; double for differences
// below 2^25; int64_t.
template <typename T>
LeafPoints<T> leaf_points(const Places& places, const KdForest& forest,
                          const std::array<int64_t, 3>& base);

}  // namespace lattice::cpu
