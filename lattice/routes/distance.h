// Launchers of distance: all pairs of float32 rows a (N, C) and b (M, C) -> (N, M); and of its
// gradient by sums of differences.
#pragma once

#include <algorithm>
#include <cmath>

#include "lattice/routes/route.h"

namespace lattice {

// A cosine is divided by max(|a| |b|, this).
inline constexpr double kLeastCosineScale = 1e-8;

Call distance_call(const mx::array& a, const mx::array& b, Distance metric, mx::StreamOrDevice s);

mx::array distance_tiles(const Call& call, const Route& route);
mx::array distance_reference(const Call& call, const Route& route);
// Tiles cover all pairs in one launch, on Metal.
Rejection needs_whole_tiles(const Call& call);
mx::array distance_with_metal(const Call& call);
mx::array distance_with_mlx(const Call& call);

// Gradients of a and b, where w (N, M) multiplies each difference a[i] - b[j]
// (kernels/cpu/features/distance_gradient.h).
Call distance_vjp_call(const mx::array& a, const mx::array& b, const mx::array& w,
                       mx::StreamOrDevice s);
graph::Arrays distance_vjp_rows(const Call& call, const Route& route);
graph::Arrays distance_vjp_with_mlx(const Call& call, const Route& route);
// In MLX operations, differentiable as they are. Inputs: a, b, w.
graph::Arrays distance_vjp_formula(const graph::Arrays& in, mx::StreamOrDevice s);
// (N, M): a[i, c] - b[j, c].
mx::array differences(const mx::array& a, const mx::array& b, int c, mx::StreamOrDevice s);

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

}  // namespace lattice
