// Takes the queries of one leaf down a tree: decides which nodes they need, computes distances to a
// leaf with vectors, and keeps the best candidates in order. Included once per Highway target.
#include <bit>
#include <type_traits>

#include <hwy/highway.h>

#include "lattice/kernels/cpu/geometry/neighbor_group.h"

#if defined(LATTICE_KERNELS_CPU_NEIGHBORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_NEIGHBORS_INL_H
#undef LATTICE_KERNELS_CPU_NEIGHBORS_INL_H
#else
#define LATTICE_KERNELS_CPU_NEIGHBORS_INL_H
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
  const auto below = [&](auto key, auto mine) HWY_ATTR {
    return hn::IfThenElseZero(hn::RebindMask(di, hn::Lt(key, mine)), one);
  };
  const auto m0 = hn::LoadU(d, v + i), m1 = V > 1 ? hn::LoadU(d, v + i + lanes) : m0,
             m2 = V > 2 ? hn::LoadU(d, v + i + 2 * lanes) : m0,
             m3 = V > 3 ? hn::LoadU(d, v + i + 3 * lanes) : m0;
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

constexpr int64_t kPairs =
    128;  // up to so many values are ranked by comparing all pairs, which takes no branches

// Ranks of n <= kPairs values; false when two are equal and so have one rank. v and ranks have room
// for 64 more.
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

// Moves the first of n >= 1 candidates by (d2, row) to the front, without branches: bits of a float
// >= 0 ascend with it.
void select_first(float* d2, int32_t* rows, int64_t n) {
  const auto key = [&](int64_t i) {
    return int64_t{std::bit_cast<int32_t>(d2[i])} << 32 | int64_t{rows[i]};
  };
  int64_t best = key(0);
  for (int64_t i = 1; i < n; ++i) best = std::min(best, key(i));
  d2[0] = std::bit_cast<float>(static_cast<int32_t>(best >> 32));
  rows[0] = static_cast<int32_t>(best & 0xffffffff);
}

// Sorts the candidates of query q by (d2, row) and keeps the first `limit`. Distances alone decide
// where all are different; otherwise keys of both: bits of a float >= 0 ascend with it.
void select(Group& g, int64_t q) {
  const int64_t n = g.count[q], keep = std::min(n, g.limit);
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* rows = g.rows.data() + q * g.capacity;
  float values[kPairs + 64];
  int32_t ranks[kPairs + 64];
  if (n <= kPairs && keep > 1) std::copy_n(d2, n, values);
  if (keep <= 1) {
    if (keep == 1) select_first(d2, rows, n);
  } else if (n <= kPairs && rank_pairs(values, n, kInfinity, ranks)) {
    int32_t moved[kPairs];
    std::copy_n(rows, n, moved);
    for (int64_t i = 0; i < n; ++i) d2[ranks[i]] = values[i], rows[ranks[i]] = moved[i];
  } else {
    int64_t* keys = g.keys.data();
    for (int64_t i = 0; i < n; ++i)
      keys[i] = int64_t{std::bit_cast<int32_t>(d2[i])} << 32 | int64_t{rows[i]};
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

// Bit q is set if the box may hold a neighbor of query q of the leaf.
template <typename T>
uint32_t who_wants(const NodeBox<T>& box, const LeafPoints<T>& queries, int64_t first,
                   const Group& g) {
  uint32_t bits = 0;
  for (int64_t q = 0; q < kLeaf; ++q) {
    const int64_t p = first + q;
    const float bound = box_bound(box, queries.axis[0][p], queries.axis[1][p], queries.axis[2][p]);
    if (bound < g.worst[q] || (bound == g.worst[q] && box.min_row < g.worst_row[q]))
      bits |= 1u << q;
  }
  return bits;
}
template <>
uint32_t who_wants(const NodeBox<float>& box, const LeafPoints<float>& queries, int64_t first,
                   const Group& g) {
  const hn::CappedTag<float, kLeaf> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto square = [&](size_t a, int64_t at) HWY_ATTR {
    const auto v = hn::LoadU(d, queries.axis[a].data() + first + at);
    const auto side = hn::Max(
        hn::Max(hn::Sub(hn::Set(d, box.lo[a]), v), hn::Sub(v, hn::Set(d, box.hi[a]))), hn::Zero(d));
    return hn::Mul(side, side);
  };
  uint32_t bits = 0;
  for (int64_t at = 0; at < kLeaf; at += lanes) {
    const auto bound = hn::Add(hn::Add(square(0, at), square(1, at)), square(2, at));
    const auto worst = hn::Load(d, g.worst + at);
    const auto earlier =
        hn::RebindMask(d, hn::Gt(hn::Load(di, g.worst_row + at), hn::Set(di, box.min_row)));
    const auto wanted = hn::Or(hn::Lt(bound, worst), hn::And(hn::Eq(bound, worst), earlier));
    uint8_t mask[8] = {};
    hn::StoreMaskBits(d, wanted, mask);
    bits |= (static_cast<uint32_t>(mask[0]) | static_cast<uint32_t>(mask[1]) << 8) << at;
  }
  return bits;
}

// Stores the lanes of `distance` and `row` where the mask holds, one behind the other, and returns
// their number. What is behind them, up to a whole vector, may be overwritten. There is no branch:
// most vectors of a leaf have nothing to keep, but nobody can predict which.
template <class D, class V, class VI>
HWY_INLINE int64_t store_chosen(D d, hn::Mask<D> mask, V distance, VI row, float* d2,
                                int32_t* rows) {
  const hn::RebindToSigned<D> di;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  hn::CompressStore(distance, mask, d, d2);
  return static_cast<int64_t>(hn::CompressStore(row, hn::RebindMask(di, mask), di, rows));
#else
  // The CompressStore of Highway 1.0 has a table that GCC 12 copies to the stack at every call.
  // With AVX2 a search of 16 neighbors took 1.65 times as long.
  static_assert(hn::MaxLanes(D()) <= 8);
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, mask, bits);
  const hn::Rebind<uint8_t, decltype(di)> d8;
  const auto at = hn::PromoteTo(di, hn::LoadU(d8, kSetBits.at[bits[0]]));
  hn::StoreU(hn::TableLookupLanes(distance, hn::IndicesFromVec(d, at)), d, d2);
  hn::StoreU(hn::TableLookupLanes(row, hn::IndicesFromVec(di, at)), di, rows);
  return std::popcount(bits[0]);
#endif
}

// Adds the rows of a source leaf that query q wants to its candidates; there is room for kLeaf of
// them. What lies behind the last row of a tree is NaN, and never near; integers have no NaN.
template <typename T>
void compare(const LeafPoints<T>& sources, const int32_t* rows, int64_t first, T x, T y, T z,
             Group& g, int64_t q) {
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* found = g.rows.data() + q * g.capacity;
  int64_t n = g.count[q];
  for (int64_t p = first; p < first + kLeaf; ++p) {
    const float distance =
        length2(gap(sources.axis[0][p], x), gap(sources.axis[1][p], y), gap(sources.axis[2][p], z));
    d2[n] = distance;
    found[n] = rows[p];
    n += distance <= g.worst[q] && (!std::is_integral_v<T> || rows[p] >= 0);
  }
  g.count[q] = n;
}
template <>
void compare(const LeafPoints<float>& sources, const int32_t* rows, int64_t first, float x, float y,
             float z, Group& g, int64_t q) {
  const hn::CappedTag<float, kLeaf> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vx = hn::Set(d, x), vy = hn::Set(d, y), vz = hn::Set(d, z),
             worst = hn::Set(d, g.worst[q]);
  float* d2 = g.d2.data() + q * g.capacity;
  int32_t* found = g.rows.data() + q * g.capacity;
  int64_t n = g.count[q];
  for (int64_t p = first; p < first + kLeaf; p += lanes) {
    const auto dx = hn::Sub(hn::LoadU(d, sources.axis[0].data() + p), vx);
    const auto dy = hn::Sub(hn::LoadU(d, sources.axis[1].data() + p), vy);
    const auto dz = hn::Sub(hn::LoadU(d, sources.axis[2].data() + p), vz);
    const auto distance = hn::Add(hn::Add(hn::Mul(dx, dx), hn::Mul(dy, dy)), hn::Mul(dz, dz));
    n += store_chosen(d, hn::Le(distance, worst), distance, hn::LoadU(di, rows + p), d2 + n,
                      found + n);
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
      compare(source.points, source.forest.rows.data(), leaf * kLeaf, at(0, q), at(1, q), at(2, q),
              g, q);
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
void search_leaf(const Side<T>& source, const KdTree& tree, const Side<T>& query, int64_t leaf,
                 float reach, Group& g) {
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

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
