// Loads tiles into threadgroup memory, 8 values at a time; shared by the topics of the bilinear
// family. Not a topic of its own.
//
// A tile's rows are `padded` so that the 8 rows of a matrix start in different memory banks. Arrays
// of the kernel may be in `device` or, when they are small, in `constant` memory: pointer types are
// template parameters everywhere.
#pragma once

#include "lattice/kernels/metal/vectors.metal"

namespace lattice {
using namespace metal;

// Elements from one row of a tile to the next.
template <typename T>
METAL_FUNC constexpr int padded(int columns) {
  return columns + 16 / int(sizeof(T));
}

// What one thread moves at a time: 8 neighboring channels of a row. Rows of tiles begin at
// multiples of 16 bytes.
template <typename T>
struct alignas(16) Eight {
  T v[8];
};
// p[from .. from + n) as V, then zeros. kWhole: n is at least 8, or at most 0.
template <bool kWhole, typename V, typename P>
METAL_FUNC Eight<V> load_eight(P p, size_t from, int n) {
  Eight<V> result;
  if (kWhole && n > 0) {
    const auto found = values_at<8>(p + from);
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) result.v[j] = V(found.v[j]);
  } else {
#pragma clang loop unroll(full)
    for (int j = 0; j < 8; ++j) result.v[j] = !kWhole && j < n ? V(p[from + size_t(j)]) : V(0);
  }
  return result;
}

template <typename V>
METAL_FUNC void store_eight(threadgroup V* to, Eight<V> values) {
  *(threadgroup Eight<V>*)to = values;
}

}  // namespace lattice
