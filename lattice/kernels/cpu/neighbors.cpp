#include "lattice/kernels/cpu/neighbors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/pieces.h"
#include "lattice/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/neighbors.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#ifndef LATTICE_KERNELS_CPU_NEIGHBORS_CPP
#define LATTICE_KERNELS_CPU_NEIGHBORS_CPP
namespace lattice::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kNoRow = std::numeric_limits<int32_t>::max();

// |a - b| without overflow, and the squared length of three of them as float32.
inline float gap(float a, float b) { return a - b; }
inline double gap(double a, double b) { return a - b; }
inline uint64_t gap(int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return a > b ? x - y : y - x;
}
inline float length2(float x, float y, float z) { return (x * x + y * y) + z * z; }
inline float length2(double x, double y, double z) { return static_cast<float>((x * x + y * y) + z * z); }
inline float length2(uint64_t x, uint64_t y, uint64_t z) {
  uint128 sum = 0;
  for (const uint64_t v : {x, y, z}) {
    const uint128 square = uint128{v} * v;
    if (sum + square < sum) return kInfinity;  // 2^128 and more
    sum += square;
  }
  return static_cast<float>(sum);
}

// Lower bound of the distance from q to the rows of a box.
template <typename T>
float box_bound(const NodeBox<T>& box, T x, T y, T z) {
  const auto side = [](T v, T lo, T hi) { return v < lo ? gap(lo, v) : v > hi ? gap(v, hi) : decltype(gap(v, v)){}; };
  return length2(side(x, box.lo[0], box.hi[0]), side(y, box.lo[1], box.hi[1]), side(z, box.lo[2], box.hi[2]));
}

// One side of a search: a forest with its coordinates.
template <typename T>
struct Side {
  const KdForest& forest;
  const LeafPoints<T>& points;
};

// The queries of one leaf and what they have found so far; candidates of query q begin at q * capacity.
struct Group {
  int64_t limit = 0;  // neighbours wanted
  bool shrink =
      false;  // the distance of the limit-th bounds what is wanted; otherwise everything up to the reach is kept
  int64_t capacity = 0;
  int64_t count[kLeaf];
  alignas(64) float worst[kLeaf];  // what is wanted: (d2, row) below (worst, worst_row]
  alignas(64) int32_t worst_row[kLeaf];
  Buffer<float> d2;
  Buffer<int32_t> rows;
  Buffer<int64_t> keys, sorted;

  void resize(int64_t wanted) {
    Buffer<float> more_d2(wanted * kLeaf + 64);
    Buffer<int32_t> more_rows(wanted * kLeaf + 64);
    for (int64_t q = 0; q < kLeaf && capacity > 0; ++q) {
      std::copy_n(d2.begin() + q * capacity, count[q], more_d2.begin() + q * wanted);
      std::copy_n(rows.begin() + q * capacity, count[q], more_rows.begin() + q * wanted);
    }
    d2 = std::move(more_d2), rows = std::move(more_rows);
    keys = Buffer<int64_t>(wanted + 64), sorted = Buffer<int64_t>(wanted + 64);
    capacity = wanted;
  }
};

// Sorts n keys, key i with distance d2[i], into `sorted`: buckets of equal width in d2, of which the points of a surface fill all
// alike, then each bucket.
void bucket_sort(const int64_t* keys, const float* d2, int64_t n, int64_t* sorted) {
  constexpr int64_t kBuckets = 1024;
  const int64_t buckets = std::min(kBuckets, n / 4);
  const float scale = static_cast<float>(buckets) / *std::max_element(d2, d2 + n);
  if (!(scale > 0 && scale < 1e30f)) {  // all 0, subnormal or infinite
    std::copy_n(keys, n, sorted);
    return std::sort(sorted, sorted + n);
  }
  int32_t first[kBuckets + 2] = {};
  const auto bucket = [&](float d) { return std::min<int64_t>(buckets - 1, static_cast<int64_t>(d * scale)); };
  for (int64_t i = 0; i < n; ++i) ++first[bucket(d2[i]) + 2];
  for (int64_t b = 2; b <= buckets; ++b) first[b] += first[b - 1];
  for (int64_t i = 0; i < n; ++i) sorted[first[bucket(d2[i]) + 1]++] = keys[i];
  for (int64_t b = 0; b < buckets; ++b) {
    int64_t *begin = sorted + first[b], *end = sorted + first[b + 1];
    if (end - begin > 24) {
      std::sort(begin, end);
      continue;
    }
    for (int64_t* at = begin + 1; at < end; ++at) {
      const int64_t key = *at;
      int64_t* hole = at;
      for (; hole > begin && hole[-1] > key; --hole) *hole = hole[-1];
      *hole = key;
    }
  }
}

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ranks[i] = number of values below v[i], V vectors of them from i on. v is padded with infinity.
template <int V, class D, typename T, typename R>
HWY_INLINE void count_below(D d, const T* v, int64_t n, int64_t i, R* ranks) {
  const hn::RebindToSigned<D> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(di, 1);
  const auto below = [&](auto key, auto mine)
                         HWY_ATTR { return hn::IfThenElseZero(hn::RebindMask(di, hn::Lt(key, mine)), one); };
  const auto m0 = hn::LoadU(d, v + i), m1 = V > 1 ? hn::LoadU(d, v + i + lanes) : m0,
             m2 = V > 2 ? hn::LoadU(d, v + i + 2 * lanes) : m0, m3 = V > 3 ? hn::LoadU(d, v + i + 3 * lanes) : m0;
  auto r0 = hn::Zero(di), r1 = r0, r2 = r0, r3 = r0;
  for (int64_t j = 0; j < n; ++j) {
    const auto key = hn::Set(d, v[j]);
    r0 = hn::Add(r0, below(key, m0));
    if constexpr (V > 1) r1 = hn::Add(r1, below(key, m1));
    if constexpr (V > 2) r2 = hn::Add(r2, below(key, m2));
    if constexpr (V > 3) r3 = hn::Add(r3, below(key, m3));
  }
  hn::StoreU(r0, di, ranks + i);
  if constexpr (V > 1) hn::StoreU(r1, di, ranks + i + lanes);
  if constexpr (V > 2) hn::StoreU(r2, di, ranks + i + 2 * lanes);
  if constexpr (V > 3) hn::StoreU(r3, di, ranks + i + 3 * lanes);
}

constexpr int64_t kPairs = 128;  // up to so many values are ranked by comparing all pairs, which takes no branches

// Ranks of n <= kPairs values; false when two are equal and so have one rank. v and ranks have room for 64 more.
template <typename T, typename R>
bool rank_pairs(T* v, int64_t n, T last, R* ranks) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill(v + n, v + n + 64, last);
  for (int64_t i = 0; i < n; i += 4 * lanes) {
    const int64_t vectors = std::min<int64_t>(4, (n - i + lanes - 1) / lanes);
    if (vectors == 1) count_below<1>(d, v, n, i, ranks);
    if (vectors == 2) count_below<2>(d, v, n, i, ranks);
    if (vectors == 3) count_below<3>(d, v, n, i, ranks);
    if (vectors == 4) count_below<4>(d, v, n, i, ranks);
  }
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += ranks[i];
  return sum == n * (n - 1) / 2;
}

// Sorts the candidates of query q by (d2, row) and keeps the first `limit`. Distances alone decide where all are different;
// otherwise keys of both: bits of a float >= 0 ascend with it.
void select(Group& g, int64_t q) {
  const int64_t n = g.count[q], keep = std::min(n, g.limit);
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* rows = g.rows.data() + q * g.capacity;
  float values[kPairs + 64];
  int32_t ranks[kPairs + 64];
  if (n <= kPairs) std::copy_n(d2, n, values);
  if (n <= kPairs && rank_pairs(values, n, kInfinity, ranks)) {
    int32_t moved[kPairs];
    std::copy_n(rows, n, moved);
    for (int64_t i = 0; i < n; ++i) d2[ranks[i]] = values[i], rows[ranks[i]] = moved[i];
  } else {
    int64_t* keys = g.keys.data();
    for (int64_t i = 0; i < n; ++i) keys[i] = int64_t{std::bit_cast<int32_t>(d2[i])} << 32 | int64_t{rows[i]};
    int64_t* sorted = g.sorted.data();
    if (n <= kPairs) {
      int64_t long_ranks[kPairs + 64];
      rank_pairs(keys, n, std::numeric_limits<int64_t>::max(), long_ranks);
      for (int64_t i = 0; i < n; ++i) sorted[long_ranks[i]] = keys[i];
    } else {
      bucket_sort(keys, d2, n, sorted);
    }
    for (int64_t i = 0; i < keep; ++i) {
      d2[i] = std::bit_cast<float>(static_cast<int32_t>(sorted[i] >> 32));
      rows[i] = static_cast<int32_t>(sorted[i] & 0xffffffff);
    }
  }
  if (g.shrink) {
    g.count[q] = keep;
    if (keep == g.limit) g.worst[q] = d2[keep - 1], g.worst_row[q] = rows[keep - 1];
  }
}

// Bit q: query q of the leaf wants something of the box.
template <typename T>
uint32_t who_wants(const NodeBox<T>& box, const LeafPoints<T>& queries, int64_t first, const Group& g) {
  uint32_t bits = 0;
  for (int64_t q = 0; q < kLeaf; ++q) {
    const int64_t p = first + q;
    const float bound = box_bound(box, queries.axis[0][p], queries.axis[1][p], queries.axis[2][p]);
    if (bound < g.worst[q] || (bound == g.worst[q] && box.min_row < g.worst_row[q])) bits |= 1u << q;
  }
  return bits;
}
template <>
uint32_t who_wants(const NodeBox<float>& box, const LeafPoints<float>& queries, int64_t first, const Group& g) {
  const hn::CappedTag<float, kLeaf> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto square = [&](size_t a, int64_t at) HWY_ATTR {
    const auto v = hn::LoadU(d, queries.axis[a].data() + first + at);
    const auto side =
        hn::Max(hn::Max(hn::Sub(hn::Set(d, box.lo[a]), v), hn::Sub(v, hn::Set(d, box.hi[a]))), hn::Zero(d));
    return hn::Mul(side, side);
  };
  uint32_t bits = 0;
  for (int64_t at = 0; at < kLeaf; at += lanes) {
    const auto bound = hn::Add(hn::Add(square(0, at), square(1, at)), square(2, at));
    const auto worst = hn::Load(d, g.worst + at);
    const auto earlier = hn::RebindMask(d, hn::Gt(hn::Load(di, g.worst_row + at), hn::Set(di, box.min_row)));
    const auto wanted = hn::Or(hn::Lt(bound, worst), hn::And(hn::Eq(bound, worst), earlier));
    uint8_t mask[8] = {};
    hn::StoreMaskBits(d, wanted, mask);
    bits |= (static_cast<uint32_t>(mask[0]) | static_cast<uint32_t>(mask[1]) << 8) << at;
  }
  return bits;
}

// Adds the rows of a source leaf that query q wants to its candidates; there is room for kLeaf of them.
template <typename T>
void compare(const LeafPoints<T>& sources, const int32_t* rows, int64_t first, T x, T y, T z, Group& g, int64_t q) {
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* found = g.rows.data() + q * g.capacity;
  int64_t n = g.count[q];
  for (int64_t p = first; p < first + kLeaf; ++p) {
    const float distance = length2(gap(sources.axis[0][p], x), gap(sources.axis[1][p], y), gap(sources.axis[2][p], z));
    d2[n] = distance;
    found[n] = rows[p];
    n += distance <= g.worst[q] && rows[p] >= 0;
  }
  g.count[q] = n;
}
template <>
void compare(const LeafPoints<float>& sources, const int32_t* rows, int64_t first, float x, float y, float z, Group& g,
             int64_t q) {
  const hn::CappedTag<float, kLeaf> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vx = hn::Set(d, x), vy = hn::Set(d, y), vz = hn::Set(d, z), worst = hn::Set(d, g.worst[q]);
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* found = g.rows.data() + q * g.capacity;
  int64_t n = g.count[q];
  for (int64_t p = first; p < first + kLeaf; p += lanes) {
    const auto dx = hn::Sub(hn::LoadU(d, sources.axis[0].data() + p), vx);
    const auto dy = hn::Sub(hn::LoadU(d, sources.axis[1].data() + p), vy);
    const auto dz = hn::Sub(hn::LoadU(d, sources.axis[2].data() + p), vz);
    const auto distance = hn::Add(hn::Add(hn::Mul(dx, dx), hn::Mul(dy, dy)), hn::Mul(dz, dz));
    const auto row = hn::LoadU(di, rows + p);
    const auto near = hn::And(hn::Le(distance, worst), hn::RebindMask(d, hn::Gt(row, hn::Set(di, -1))));
    hn::CompressStore(distance, near, d, d2 + n);
    n += static_cast<int64_t>(hn::CompressStore(row, hn::RebindMask(di, near), di, found + n));
  }
  g.count[q] = n;
}

template <typename T>
struct Search {
  const Side<T>& source;
  const Side<T>& query;
  int64_t first;  // of the queries in their leaf order
  Group& g;

  T at(int a, int64_t q) const { return query.points.axis[a][first + q]; }

  void visit(int64_t leaf, uint32_t who) {
    for (; who; who &= who - 1) {
      const int64_t q = std::countr_zero(who);
      if (g.count[q] + kLeaf > g.capacity) {
        if (g.shrink) select(g, q);
        if (g.count[q] + kLeaf > g.capacity) g.resize(2 * g.capacity);
      }
      compare(source.points, source.forest.rows.data(), leaf * kLeaf, at(0, q), at(1, q), at(2, q), g, q);
    }
  }

  struct Node {
    int64_t id, a, b;
  };
  std::pair<Node, Node> children(const Node& n) const {
    const int64_t mid = middle(n.a, n.b);
    Node left{n.id + 1, n.a, mid}, right{n.id + 2 * (mid - n.a), mid, n.b};
    const auto bound = [&](const Node& c) {
      return box_bound(source.points.boxes[c.id], at(0, 0), at(1, 0), at(2, 0));
    };
    if (bound(right) < bound(left)) std::swap(left, right);
    return {left, right};  // the nearer one first
  }

  void run(const KdTree& tree, uint32_t everyone) {
    const Node root{tree.first_node(), tree.first_leaf, tree.first_leaf + tree.leaves};
    Node home = root;
    while (home.b - home.a > 1) home = children(home).first;
    visit(home.a, who_wants(source.points.boxes[home.id], query.points, first, g));
    if (g.shrink)
      for (uint32_t who = everyone; who; who &= who - 1)
        if (const int64_t q = std::countr_zero(who); g.count[q] >= g.limit) select(g, q);
    Node stack[128];
    int depth = 0;
    stack[depth++] = root;
    while (depth > 0) {
      const Node n = stack[--depth];
      if (n.id == home.id) continue;
      const uint32_t who = who_wants(source.points.boxes[n.id], query.points, first, g);
      if (!who) continue;
      if (n.b - n.a == 1) {
        visit(n.a, who);
        continue;
      }
      const auto [near, far] = children(n);
      stack[depth++] = far;
      stack[depth++] = near;
    }
    for (uint32_t who = everyone; who; who &= who - 1) select(g, std::countr_zero(who));
  }
};

template <typename T>
void search_leaf(const Side<T>& source, const KdTree& tree, const Side<T>& query, int64_t leaf, float reach, Group& g) {
  uint32_t everyone = 0;
  for (int64_t q = 0; q < kLeaf; ++q) {
    const bool real = query.forest.rows[leaf * kLeaf + q] >= 0;
    everyone |= real ? 1u << q : 0u;
    g.count[q] = 0;
    g.worst[q] = real ? reach : -1.0f;
    g.worst_row[q] = kNoRow;
  }
  Search<T>{source, query, leaf * kLeaf, g}.run(tree, everyone);
}

void search_float(const Side<float>& s, const KdTree& t, const Side<float>& q, int64_t leaf, float reach, Group& g) {
  search_leaf(s, t, q, leaf, reach, g);
}
void search_double(const Side<double>& s, const KdTree& t, const Side<double>& q, int64_t leaf, float reach, Group& g) {
  search_leaf(s, t, q, leaf, reach, g);
}
void search_integer(const Side<int64_t>& s, const KdTree& t, const Side<int64_t>& q, int64_t leaf, float reach,
                    Group& g) {
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

// Searches the queries of leaf `leaf` in a tree; results are in `g`, sorted. Dispatched at every call: the first call of a process
// has no address that could be kept.
template <typename T>
void search_leaf(const Side<T>& source, const KdTree& tree, const Side<T>& query, int64_t leaf, float reach, Group& g) {
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
      throw std::length_error("neighbours must be fewer than 2^31, found more; ask for fewer a query");
  }
  offsets[n] = static_cast<int32_t>(total);
}

// Found neighbours of one task, query after query in leaf order.
struct Part {
  std::vector<int32_t> sources;
  std::vector<float> distances;
  int64_t truncated = 0;
};

template <typename T>
Neighbors search_all(const Side<T>& source, const Side<T>& query, int64_t n_query, const NeighborQuery& wanted) {
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
  if (shrink) {  // the number of neighbours is known
    sum_offsets(out.offsets, n_query);
    out.sources = Buffer<int32_t>(out.offsets[n_query]);
    out.distances = Buffer<float>(out.offsets[n_query]);
  }
  std::vector<Part> parts(static_cast<size_t>(shrink ? 0 : tasks));
  parallel_for(tasks, [&](int64_t task) {
    Group g;
    g.limit = wanted.limit;
    g.shrink = shrink;
    g.resize(shrink ? std::min(2 * wanted.limit, wanted.limit + 1024) + kLeaf : 8 * kLeaf);
    for (int64_t leaf = task * kTask; leaf < std::min(leaves, (task + 1) * kTask); ++leaf) {
      const KdTree* tree = tree_of[static_cast<size_t>(leaf)];
      if (!tree) continue;
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
  if (shrink) return out;
  sum_offsets(out.offsets, n_query);
  out.sources = Buffer<int32_t>(out.offsets[n_query]);
  out.distances = Buffer<float>(out.offsets[n_query]);
  parallel_for(tasks, [&](int64_t task) {
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
  return out;
}

}  // namespace

NeighborTree::NeighborTree(const Places& places) : places_(places), box_(places.box()), forest_(build_forest(places)) {
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

Neighbors NeighborTree::search(const NeighborQuery& query) const { return search(places_, forest_, true, query); }

Neighbors NeighborTree::search(const Places& queries, const NeighborQuery& query) const {
  return search(queries, build_forest(queries), false, query);
}

size_t NeighborTree::nbytes() const { return forest_.rows.nbytes(); }

}  // namespace lattice::cpu
#endif
