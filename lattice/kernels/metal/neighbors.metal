// Neighbors by comparing every query with every source of its batch: one thread per query, sources
// in tiles that a group shares.
//
//   count: how many sources are within reach
//   take:  the nearest `width` of them, by (d2, source row)
//
// A row is (batch, x, y, z): int32 coordinates, or the bits of float32 points.
//   points:       d2 = (dx * dx + dy * dy) + dz * dz, each operation rounded to float32
//   coordinates:  d2 is exact and rounded once to float32
// Sources come in ascending order, so a later one with the same distance goes behind.
#include "lattice/kernels/metal/coords.metal"
#include "lattice/kernels/metal/exact.metal"

namespace lattice {
using namespace metal;

constant constexpr int kTile = 64;  // sources of a tile, threads of a group

METAL_FUNC ulong square(int a, int b) {
  const ulong d = a > b ? ulong(long(a) - long(b)) : ulong(long(b) - long(a));
  return d * d;
}

// carry * 2^64 + low, to the nearest float32, ties to even; carry <= 2.
METAL_FUNC float rounded(uint carry, ulong low) {
  int exponent = 0;
  if (carry != 0) {  // two bits out at the bottom, remembered in the lowest
    low = (ulong(carry) << 62) | (low >> 2) | ulong((low & 3) != 0);
    exponent = 2;
  }
  const uint high = uint(low >> 32);
  const int bits = high != 0 ? 64 - int(clz(high)) : 32 - int(clz(uint(low)));
  const int drop = bits - 24;
  if (drop <= 0) return float(uint(low));
  const ulong rest = low & ((ulong(1) << ulong(drop)) - 1), middle = ulong(1) << ulong(drop - 1);
  uint kept = uint(low >> ulong(drop));
  kept += rest > middle || (rest == middle && (kept & 1u) != 0) ? 1u : 0u;
  return float(kept) * as_type<float>(uint(127 + drop + exponent) << 23u);
}

template <bool kPoints>
METAL_FUNC float distance_of(int4 a, int4 b) {
  if (kPoints) {
    const float dx = as_type<float>(a.y) - as_type<float>(b.y);
    const float dy = as_type<float>(a.z) - as_type<float>(b.z);
    const float dz = as_type<float>(a.w) - as_type<float>(b.w);
    const float xx = lattice::rounded_product(dx, dx), yy = lattice::rounded_product(dy, dy),
                zz = lattice::rounded_product(dz, dz);
    return lattice::rounded_sum(lattice::rounded_sum(xx, yy), zz);
  }
  const ulong xx = square(a.y, b.y), yy = square(a.z, b.z), zz = square(a.w, b.w);
  const ulong xy = xx + yy, sum = xy + zz;
  return rounded(uint(xy < xx) + uint(sum < xy), sum);
}

// A list of at most `width` neighbors in ascending order.
struct Nearest {
  device int* rows;
  device float* distances;
  int width, n;
  void add(float d2, int row) thread {
    if (n == width && !(d2 < distances[width - 1])) return;
    int at = n < width ? n++ : width - 1;
    for (; at > 0 && distances[at - 1] > d2; --at) {
      distances[at] = distances[at - 1];
      rows[at] = rows[at - 1];
    }
    distances[at] = d2;
    rows[at] = row;
  }
};
struct Counted {
  int n;
  void add(float, int) thread { ++n; }
};

// Where a thread of a group is: its query, and its place in the group.
struct SearchPlace {
  uint3 grid, group;
};

// Adds the sources of the query's batch within reach to `found`. All threads of a group take part;
// those without a query add none.
template <bool kPoints, typename Found, typename Sources, typename Queries>
METAL_FUNC void visit_sources(thread Found& found, Sources sources, Queries queries,
                              SearchSizes sizes, threadgroup int4* tile, SearchPlace at) {
  const int n = sizes.n_sources, q = int(at.grid.x), lane = int(at.group.x);
  const bool asks = q < sizes.n_queries;
  const int4 query = asks ? coordinate(queries, q) : int4(0, 0, 0, 0);
  for (int first = 0; first < n; first += kTile) {
    const int size = min(kTile, n - first);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane < size) tile[lane] = coordinate(sources, first + lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; asks && j < size; ++j) {
      if (tile[j].x != query.x) continue;
      const float d2 = distance_of<kPoints>(query, tile[j]);
      if (d2 <= sizes.reach) found.add(d2, first + j);
    }
  }
}

template <bool kPoints, typename Sources, typename Queries>
METAL_FUNC void count_neighbors(device int* counts, Sources sources, Queries queries,
                                SearchSizes sizes, threadgroup int4* tile, SearchPlace at) {
  Counted found = {0};
  visit_sources<kPoints>(found, sources, queries, sizes, tile, at);
  if (int(at.grid.x) < sizes.n_queries) counts[at.grid.x] = found.n;
}

// rows and distances are (n_queries, width).
template <bool kPoints, typename Sources, typename Queries>
METAL_FUNC void take_neighbors(device int* rows, device float* distances, Sources sources,
                               Queries queries, SearchSizes sizes, threadgroup int4* tile,
                               SearchPlace at) {
  const int q = min(int(at.grid.x), sizes.n_queries - 1);
  const size_t first = size_t(q) * size_t(sizes.width);
  Nearest found = {rows + first, distances + first, sizes.width, 0};
  visit_sources<kPoints>(found, sources, queries, sizes, tile, at);
}

}  // namespace lattice
