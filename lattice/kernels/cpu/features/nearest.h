// The k nearest rows in any number of dimensions, by comparing all pairs.
//
//   d2[i, j] = sum over c of (query[i, c] - source[j, c])^2 in float32, by ascending c
//
// Neighbors of a query are ordered by (d2, row). Memory: a copy of the sources, and
// 2 k candidates of each query of a task.
#pragma once

#include <cstdint>

namespace lattice::cpu {

// source (n, c), query (m, c); rows and distances are (m, k); 1 <= k <= n.
void nearest_rows(const float* source, int64_t n, const float* query, int64_t m, int64_t c,
                  int64_t k, int32_t* rows, float* distances);

}  // namespace lattice::cpu
