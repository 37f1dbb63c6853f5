// A table of coordinates (batch, x, y, z): open addressing with linear probing, where a slot holds
// a row or -1.
//
//   insert:  every row; of equal rows the smallest stays, whatever the order in which threads come
//   find:    the smallest row with that coordinate, or -1
//   compact: out[0, r] = number[first[r]] for all rows,
//            out[1, number[r]] = r for rows that are the first with their coordinate
//
// Coordinates are compared in full; the hash only says where to begin. A slot, once taken, keeps
// its coordinate, so a row that was read from it stays right. There are more slots than rows:
// every search ends.
#pragma once

#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/portable/geometry_sizes.h"

namespace lattice {
using namespace metal;

template <typename Rows>
METAL_FUNC int4 coordinate(Rows rows, int r) {
  const size_t at = size_t(r) * 4;
  return int4(rows[at], rows[at + 1], rows[at + 2], rows[at + 3]);
}

METAL_FUNC bool same_coordinate(int4 a, int4 b) {
  return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}

// The finalizer of MurmurHash3 (Appleby 2011) on each word in turn.
METAL_FUNC uint mixed(uint h, int word) {
  h = (h ^ uint(word)) * 0x9e3779b9u;
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}
METAL_FUNC uint hash_of(int4 c) { return mixed(mixed(mixed(mixed(0u, c.x), c.y), c.z), c.w); }

template <typename Rows>
METAL_FUNC void insert_coordinate(device int* slots, Rows rows, TableSizes sizes, uint3 thread_at) {
  const int r = int(thread_at.x);
  const uint n_slots = uint(sizes.n_slots);
  const int4 c = coordinate(rows, r);
  uint at = hash_of(c) & (n_slots - 1);
  while (true) {
    device atomic_int* slot = reinterpret_cast<device atomic_int*>(slots + at);
    int found = -1;
    if (atomic_compare_exchange_weak_explicit(slot, &found, r, memory_order_relaxed,
                                              memory_order_relaxed))
      return;
    if (found < 0) continue;  // it failed for no reason: the same slot again
    if (same_coordinate(coordinate(rows, found), c)) {
      atomic_fetch_min_explicit(slot, r, memory_order_relaxed);
      return;
    }
    at = (at + 1) & (n_slots - 1);
  }
}

// n_slots is a power of two.
template <typename Slots, typename Rows>
METAL_FUNC int find_coordinate(Slots slots, uint n_slots, Rows rows, int4 c) {
  for (uint at = hash_of(c) & (n_slots - 1);; at = (at + 1) & (n_slots - 1)) {
    const int r = slots[at];
    if (r < 0 || same_coordinate(coordinate(rows, r), c)) return r;
  }
}

template <typename Slots, typename Rows, typename Queries>
METAL_FUNC void find_row(device int* out, Slots slots, Rows rows, Queries queries, TableSizes sizes,
                         uint3 thread_at) {
  const int q = int(thread_at.x);
  out[q] = find_coordinate(slots, uint(sizes.n_slots), rows, coordinate(queries, q));
}

// out is (2, n_rows).
template <typename First, typename Number>
METAL_FUNC void compact_row(device int* out, First first, Number number, TableSizes sizes,
                            uint3 thread_at) {
  const int r = int(thread_at.x), f = first[r];
  out[r] = number[f];
  if (f == r) out[size_t(sizes.n_rows) + number[r]] = r;
}

}  // namespace lattice
