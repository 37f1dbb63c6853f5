// Distances of all pairs of float32 rows a (N, C) and b (M, C) -> (N, M).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "lattice/kernels/cpu/features/distance.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

// A cosine is divided by max(|a| |b|, this).
inline constexpr double kLeastCosineScale = 1e-8;

using cpu::Distance;
const char* name(Distance metric);

struct DistanceAsked {
  mx::array a, b;
  Distance metric = Distance::euclidean;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};

const Table<DistanceAsked, mx::array>& distance_rows();
std::vector<DistanceAsked> probe_cases(const DistanceAsked& like);

mx::array distance_tiles(const DistanceAsked& asked, const Route& route);
mx::array distance_reference(const DistanceAsked& asked, const Route& route);
// Tiles cover all pairs in one launch: MLX counts threads in 32 bits.
inline constexpr int kDistanceTile = 16;  // side of a tile in distance.metal
inline constexpr int kMostDistanceRows =
    std::numeric_limits<int>::max() / kDistanceTile * kDistanceTile;
mx::array distance_with_metal(const DistanceAsked& asked);
mx::array distance_with_mlx(const DistanceAsked& asked);

// One distance in float64; `terms` receives the sum of what was added, each positive.
double exact_distance(const auto& a, const auto& b, int64_t c, Distance metric,
                      double* terms = nullptr) {
  double square = 0, dot = 0, aa = 0, bb = 0, absolute = 0;
  for (int64_t i = 0; i < c; ++i) {
    const double x = double{a[i]}, y = double{b[i]};
    square += (x - y) * (x - y);
    dot += x * y, absolute += std::fabs(x * y), aa += x * x, bb += y * y;
  }
  const double scale = std::max(std::sqrt(aa) * std::sqrt(bb), kLeastCosineScale);
  const double d = metric == Distance::cosine      ? 1 - dot / scale
                   : metric == Distance::euclidean ? std::sqrt(square)
                                                   : square;
  if (terms) *terms = metric == Distance::cosine ? 1 + absolute / scale : d;
  return d;
}

}  // namespace lattice::routes
