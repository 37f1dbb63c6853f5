#include "lattice/kernels/cpu/geometry/kdtree.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "lattice/kernels/cpu/base/chunks.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kAlone = 256;  // leaves of a subtree that one task finishes

struct Item {
  float at[3];
  int32_t row;
};

// Items [begin, end) of a tree, leaves [a, b) of it; item 0 of the tree is items[0].
struct Range {
  Item* items;
  int64_t rows;
  int64_t a, b;
  Item* begin() const { return items + a * kLeaf; }
  Item* end() const { return items + std::min(b * kLeaf, rows); }
};

// Cuts a range in two at the median of its longest side.
std::pair<Range, Range> cut(const Range& r) {
  float lo[3], hi[3];
  std::fill(lo, lo + 3, std::numeric_limits<float>::infinity());
  std::fill(hi, hi + 3, -std::numeric_limits<float>::infinity());
  for (const Item* i = r.begin(); i != r.end(); ++i)
    for (int a = 0; a < 3; ++a)
      lo[a] = std::min(lo[a], i->at[a]), hi[a] = std::max(hi[a], i->at[a]);
  int axis = 0;
  for (int a = 1; a < 3; ++a)
    if (hi[a] - lo[a] > hi[axis] - lo[axis]) axis = a;
  const int64_t mid = middle(r.a, r.b);
  std::nth_element(r.begin(), r.items + mid * kLeaf, r.end(),
                   [axis](const Item& l, const Item& g) { return l.at[axis] < g.at[axis]; });
  return {{r.items, r.rows, r.a, mid}, {r.items, r.rows, mid, r.b}};
}

void cut_all(const Range& r) {
  if (r.b - r.a < 2) return;
  const auto [left, right] = cut(r);
  cut_all(left);
  cut_all(right);
}

// Large ranges are cut one level at a time, by all threads, the rest in one task each.
void cut_forest(std::vector<Range> ranges) {
  std::vector<Range> small;
  while (!ranges.empty()) {
    std::vector<Range> next(ranges.size() * 2);
    parallel_for(static_cast<int64_t>(ranges.size()), [&](int64_t i) {
      const size_t at = static_cast<size_t>(i);
      if (ranges[at].b - ranges[at].a > kAlone)
        std::tie(next[at * 2], next[at * 2 + 1]) = cut(ranges[at]);
      else
        next[at * 2] = ranges[at], next[at * 2 + 1] = {nullptr, 0, 0, 0};
    });
    ranges.clear();
    for (const Range& r : next)
      if (r.items) (r.b - r.a > kAlone ? ranges : small).push_back(r);
  }
  parallel_for(static_cast<int64_t>(small.size()),
               [&](int64_t i) { cut_all(small[static_cast<size_t>(i)]); });
}

// Rows by batch, ascending inside; the rows of each batch.
struct Batches {
  Buffer<int32_t> order;  // empty: one batch, rows as they are
  std::vector<std::pair<int64_t, int64_t>> sizes;
};
Batches sort_batches(const Places& places) {
  Batches out;
  int64_t lo = std::numeric_limits<int64_t>::max(), hi = 0;
  if (places.points && !places.batch)
    lo = 0;
  else
    for (int64_t r = 0; r < places.n; ++r)
      lo = std::min(lo, places.batch_of(r)), hi = std::max(hi, places.batch_of(r));
  if (lo == hi) {
    out.sizes.emplace_back(lo, places.n);
    return out;
  }
  Buffer<uint64_t> keys(places.n);
  out.order = Buffer<int32_t>(places.n);
  sort_keys(
      places.n, std::bit_width(static_cast<uint64_t>(hi - lo)),
      [&](int64_t r) { return static_cast<uint64_t>(places.batch_of(r) - lo); }, keys, out.order);
  for (int64_t p = 0; p < places.n; ++p) {
    if (p == 0 || keys[p] != keys[p - 1])
      out.sizes.emplace_back(static_cast<int64_t>(keys[p]) + lo, 0);
    ++out.sizes.back().second;
  }
  return out;
}

template <typename T>
struct Boxer {
  LeafPoints<T>& out;
  const KdForest& forest;

  // Fills the boxes of node `id` over leaves [a, b) and below; subtrees of at most `known` leaves
  // have theirs already.
  const NodeBox<T>& fill(int64_t id, int64_t a, int64_t b, int64_t known) {
    NodeBox<T>& box = out.boxes[id];
    if (b - a <= known) return box;
    if (b - a == 1) {
      const int32_t* rows = forest.rows.data() + a * kLeaf;
      const int64_t n = std::find(rows, rows + kLeaf, -1) - rows;
      box.min_row = *std::min_element(rows, rows + n);
      for (size_t axis = 0; axis < 3; ++axis) {
        const T* v = out.axis[axis].data() + a * kLeaf;
        const auto [least, most] = std::minmax_element(v, v + n);
        box.lo[axis] = *least, box.hi[axis] = *most;
      }
      return box;
    }
    const int64_t mid = middle(a, b);
    const NodeBox<T>& left = fill(id + 1, a, mid, known);
    const NodeBox<T>& right = fill(id + 2 * (mid - a), mid, b, known);
    for (size_t axis = 0; axis < 3; ++axis) {
      box.lo[axis] = std::min(left.lo[axis], right.lo[axis]);
      box.hi[axis] = std::max(left.hi[axis], right.hi[axis]);
    }
    box.min_row = std::min(left.min_row, right.min_row);
    return box;
  }
};

struct Subtree {
  int64_t id, a, b;
};
void small_subtrees(int64_t id, int64_t a, int64_t b, std::vector<Subtree>& found) {
  if (b - a <= kAlone) return found.push_back({id, a, b});
  const int64_t mid = middle(a, b);
  small_subtrees(id + 1, a, mid, found);
  small_subtrees(id + 2 * (mid - a), mid, b, found);
}

}  // namespace

const KdTree* KdForest::find(int64_t batch) const {
  const auto at =
      std::lower_bound(trees.begin(), trees.end(), batch,
                       [](const KdTree& tree, int64_t wanted) { return tree.batch < wanted; });
  return at != trees.end() && at->batch == batch ? &*at : nullptr;
}

KdForest build_forest(const Places& places) {
  KdForest forest;
  if (places.n == 0) return forest;
  const Batches batches = sort_batches(places);
  Buffer<Item> items(places.n);
  const Box box = places.box();
  each_piece(places.n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = batches.order.empty() ? p : batches.order[p];
      Item& item = items[p];
      item.row = static_cast<int32_t>(row);
      for (int a = 0; a < 3; ++a)
        item.at[a] = places.points ? places.points[row * 3 + a]
                                   : static_cast<float>(int128{places.coords.at(row, a + 1)} -
                                                        box.lo[static_cast<size_t>(a) + 1]);
    }
  });
  std::vector<Range> ranges;
  int64_t leaf = 0, first = 0;
  for (const auto& [batch, rows] : batches.sizes) {
    const int64_t leaves = (rows + kLeaf - 1) / kLeaf;
    forest.trees.push_back({batch, rows, leaf, leaves});
    ranges.push_back({items.data() + first, rows, 0, leaves});
    leaf += leaves;
    first += rows;
  }
  cut_forest(ranges);
  forest.rows = Buffer<int32_t>(leaf * kLeaf);
  for (size_t t = 0; t < forest.trees.size(); ++t) {
    const KdTree& tree = forest.trees[t];
    int32_t* to = forest.rows.data() + tree.first_leaf * kLeaf;
    each_piece(tree.leaves * kLeaf, [&](size_t, int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) to[p] = p < tree.rows ? ranges[t].items[p].row : -1;
    });
  }
  return forest;
}

template <typename T>
LeafPoints<T> leaf_points(const Places& places, const KdForest& forest,
                          const std::array<int64_t, 3>& base) {
  const int64_t n = forest.rows.size();
  LeafPoints<T> out{{Buffer<T>(n), Buffer<T>(n), Buffer<T>(n)},
                    Buffer<NodeBox<T>>(2 * forest.leaves())};
  std::vector<Subtree> subtrees;
  for (const KdTree& tree : forest.trees)
    small_subtrees(tree.first_node(), tree.first_leaf, tree.first_leaf + tree.leaves, subtrees);
  const auto value = [&](int64_t row, int a) {
    if (places.points) return static_cast<T>(places.points[row * 3 + a]);
    const int64_t v = places.coords.at(row, a + 1);
    if constexpr (std::is_same_v<T, int64_t>)
      return v;
    else
      return static_cast<T>(v - base[static_cast<size_t>(a)]);
  };
  Boxer<T> boxer{out, forest};
  parallel_for(static_cast<int64_t>(subtrees.size()), [&](int64_t i) {
    const Subtree& s = subtrees[static_cast<size_t>(i)];
    for (int64_t p = s.a * kLeaf; p < s.b * kLeaf; ++p) {
      const int32_t row = forest.rows[p] >= 0 ? forest.rows[p] : forest.rows[p / kLeaf * kLeaf];
      const bool none = forest.rows[p] < 0 && std::numeric_limits<T>::has_quiet_NaN;
      for (int a = 0; a < 3; ++a)
        out.axis[a][p] = none ? std::numeric_limits<T>::quiet_NaN() : value(row, a);
    }
    boxer.fill(s.id, s.a, s.b, 0);
  });
  for (const KdTree& tree : forest.trees)
    boxer.fill(tree.first_node(), tree.first_leaf, tree.first_leaf + tree.leaves, kAlone);
  return out;
}

template LeafPoints<float> leaf_points(const Places&, const KdForest&,
                                       const std::array<int64_t, 3>&);
template LeafPoints<double> leaf_points(const Places&, const KdForest&,
                                        const std::array<int64_t, 3>&);
template LeafPoints<int64_t> leaf_points(const Places&, const KdForest&,
                                         const std::array<int64_t, 3>&);

}  // namespace lattice::cpu
