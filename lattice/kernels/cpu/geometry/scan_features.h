// Makes the input of a network from a cloud: points relative to their low corner, and the numbers
// that become the features of voxels. Lengths are in voxels.
//
//   table[p]   = fraction of p in its voxel - 0.5 (3), (z - second percentile of z) / 10, columns
//   feature[v] = 1, means of the table (4), log(1 + points) / 2, means of the columns
//
// Everything is float32 with one rounding per step, so the bits are the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// Rows of points (n, 3) that are finite, ascending.
template <typename T>
Buffer<int32_t> finite_rows(const T* points, int64_t n);

// The smallest x, y and z of these rows; 0 when there are none.
template <typename T>
std::array<double, 3> low_corner(const T* points, std::span<const int32_t> rows);

// out[j] = points[rows[j]] - origin, subtracted in float64.
template <typename T>
void local_points(const T* points, std::span<const int32_t> rows,
                  const std::array<double, 3>& origin, float* out);

// The value at `share` of the sorted values, between two of them linearly; 0 without values. Moves
// the values.
float quantile(std::span<float> values, double share);

// The first four numbers of each row of the table, whose rows have `width` numbers. `ground`: the
// second percentile of z in voxels, if it is known; otherwise that of these points.
void scan_table(const float* points, int64_t n, float voxel, int64_t width, float* table,
                const float* ground = nullptr);

// feats (m, width + 2) from the means of the table (m, width) and the points of each voxel.
void scan_features(const float* means, const int32_t* counts, int64_t m, int64_t width,
                   float* feats);

}  // namespace lattice::cpu
