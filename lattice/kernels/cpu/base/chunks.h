// Loops over fixed pieces of rows. What is counted per piece and then summed gives each piece its
// place. So the result does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {

inline constexpr int64_t kPiece = 1 << 14;

inline int64_t piece_count(int64_t n) { return (n + kPiece - 1) / kPiece; }

// Calls body(piece, begin, end) for the pieces of [0, n).
template <typename F>
void each_piece(int64_t n, const F& body) {
  parallel_for(piece_count(n), [&](int64_t p) {
    body(static_cast<size_t>(p), p * kPiece, std::min(n, (p + 1) * kPiece));
  });
}

// Replaces each value by the sum of those before it; returns the total.
inline int64_t exclusive_sum(std::vector<int64_t>& values) {
  int64_t total = 0;
  for (int64_t& v : values) total += std::exchange(v, total);
  return total;
}

// Ascending list of the rows in [0, n) with keep(row).
template <typename Keep>
Buffer<int32_t> rows_that(int64_t n, const Keep& keep) {
  std::vector<int64_t> first(static_cast<size_t>(piece_count(n)));
  each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t r = begin; r < end; ++r) count += keep(r) ? 1 : 0;
    first[piece] = count;
  });
  Buffer<int32_t> rows(exclusive_sum(first));
  each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    int64_t at = first[piece];
    for (int64_t r = begin; r < end; ++r)
      if (keep(r)) rows[at++] = static_cast<int32_t>(r);
  });
  return rows;
}

}  // namespace lattice::cpu
