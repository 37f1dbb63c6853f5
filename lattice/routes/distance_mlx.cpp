// distance from plain MLX operations.
#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/products.h"

namespace lattice::routes {

// No (N, M, C) array either: the squares of one channel at a time.
mx::array distance_with_mlx(const DistanceAsked& asked) {
  const auto& [a, b, metric, s] = asked;
  const mx::array bt = mx::transpose(b, s);
  if (metric == Distance::cosine) {
    const auto norm = [s = asked.stream](const mx::array& v) {
      return mx::sqrt(sum_axis(mx::square(v, s), 1, true, s), s);
    };
    const mx::array scale = mx::maximum(mx::multiply(norm(a), mx::transpose(norm(b), s), s),
                                        mx::array(static_cast<float>(kLeastCosineScale)), s);
    const mx::array dots =
        a.shape(1) ? product(a, bt, s) : mx::zeros(scale.shape(), mx::float32, s);
    return mx::subtract(mx::array(1.0f), mx::divide(dots, scale, s), s);
  }
  mx::array d = mx::zeros({a.shape(0), b.shape(0)}, mx::float32, s);
  for (int c = 0; c < a.shape(1); ++c) {
    const mx::array x = mx::slice(a, {0, c}, {a.shape(0), c + 1}, s),
                    y = mx::slice(bt, {c, 0}, {c + 1, b.shape(0)}, s);
    d = mx::add(d, mx::square(mx::subtract(x, y, s), s), s);
  }
  return metric == Distance::euclidean ? mx::sqrt(d, s) : d;
}

}  // namespace lattice::routes
