// Loops over fixed pieces of rows. Each piece first counts what it will write, and then writes at
// the sum of the counts of the pieces before it. So the result does not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {

inline constexpr int64_t kPiece = 1 << 14;

// Up to this many pieces stay on the caller's thread. They take 50 to 100 microseconds, about what
// it costs to wake another thread: 30,000 points were quantized in 0.85 ms by one thread and in
// 0.86 to 1.3 ms by two.
inline constexpr int64_t kSerialPieces = 2;

inline int64_t piece_count(int64_t n) { return (n + kPiece - 1) / kPiece; }

// Calls body(piece, begin, end) for the pieces of [0, n).
template <typename F>
void each_piece(int64_t n, const F& body) {
  const auto run = [&](int64_t p) {
    body(static_cast<size_t>(p), p * kPiece, std::min(n, (p + 1) * kPiece));
  };
  if (piece_count(n) > kSerialPieces) return parallel_for(piece_count(n), run);
  for (int64_t p = 0; p < piece_count(n); ++p) run(p);
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
