// Distances between all rows of two arrays, without an array of differences.
//
//   squared:   d[i, j] = sum_c (a[i, c] - b[j, c])^2          euclidean: its square root
//   cosine:    d[i, j] = 1 - <a[i], b[j]> / max(|a[i]| |b[j]|, 1e-8)
//
// a is (n, c), b is (m, c), d is (n, m), float32, row-contiguous. Rows are subtracted; |a|^2 +
// |b|^2 - 2 <a, b> would lose the distances of near points. Sums are float32 by ascending c.
#pragma once

#include <cstdint>

namespace lattice::cpu {

enum class Distance { euclidean, squared, cosine };

void distance_matrix(const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance kind,
                     float* d);

}  // namespace lattice::cpu
