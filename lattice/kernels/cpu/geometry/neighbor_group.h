// The queries of one leaf of a neighbor search: distances that never overflow, candidates, and
// their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "lattice/kernels/cpu/geometry/kdtree.h"

namespace lattice::cpu {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int32_t kNoRow = std::numeric_limits<int32_t>::max();

// |a - b| without overflow, and the squared length of three of them as float32.
inline float gap(float a, float b) { return a - b; }
inline double gap(double a, double b) { return a - b; }
inline uint64_t gap(int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return a > b ? x - y : y - x;
}
inline float length2(float x, float y, float z) { return (x * x + y * y) + z * z; }
inline float length2(double x, double y, double z) {
  return static_cast<float>((x * x + y * y) + z * z);
}
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
  const auto side = [](T v, T lo, T hi) {
    return v < lo ? gap(lo, v) : v > hi ? gap(v, hi) : decltype(gap(v, v)){};
  };
  return length2(side(x, box.lo[0], box.hi[0]), side(y, box.lo[1], box.hi[1]),
                 side(z, box.lo[2], box.hi[2]));
}

// One side of a search: a forest with its coordinates.
template <typename T>
struct Side {
  const KdForest& forest;
  const LeafPoints<T>& points;
};

// The queries of one leaf and what they have found so far; candidates of query q begin at q *
// capacity.
struct Group {
  int64_t limit = 0;    // neighbors wanted
  bool shrink = false;  // the limit-th neighbor bounds the search; otherwise all rows
                        // within the reach are kept
  int64_t capacity = 0;
  int64_t count[kLeaf];
  alignas(64) float worst[kLeaf];  // rows up to (worst, worst_row] are still candidates
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

// at[bits] begins with the places of the set bits, ascending.
struct SetBits {
  uint8_t at[256][8] = {};
  constexpr SetBits() {
    for (int bits = 0; bits < 256; ++bits)
      for (int i = 0, n = 0; i < 8; ++i)
        if (bits >> i & 1) at[bits][n++] = static_cast<uint8_t>(i);
  }
};
inline constexpr SetBits kSetBits;

// Sorts n keys, key i with distance d2[i], into `sorted`. The keys fall into bins of equal width in
// d2, which the points of a surface fill evenly; then each bin is sorted.
inline void bucket_sort(const int64_t* keys, const float* d2, int64_t n, int64_t* sorted) {
  constexpr int64_t kBuckets = 1024;
  const int64_t buckets = std::min(kBuckets, n / 4);
  const float scale = static_cast<float>(buckets) / *std::max_element(d2, d2 + n);
  if (!(scale > 0 && scale < 1e30f)) {  // all 0, subnormal or infinite
    std::copy_n(keys, n, sorted);
    return std::sort(sorted, sorted + n);
  }
  int32_t first[kBuckets + 2] = {};
  const auto bucket = [&](float d) {
    return std::min<int64_t>(buckets - 1, static_cast<int64_t>(d * scale));
  };
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

}  // namespace lattice::cpu
