// distance and its gradient from plain MLX operations.
#include <mlx/ops.h>

#include "lattice/routes/distance.h"
#include "lattice/routes/products.h"

namespace lattice {

// No (N, M, C) array either: the squares of one channel at a time.
mx::array distance_with_mlx(const Call& call) {
  const auto s = call.stream;
  const Distance metric = call.get<Pairs>().metric;
  const mx::array &a = call.inputs[0], &b = call.inputs[1];
  const mx::array bt = mx::transpose(b, s);
  if (metric == Distance::cosine) {
    const auto norm = [s](const mx::array& v) {
      return mx::sqrt(mx::sum(mx::square(v, s), 1, true, s), s);
    };
    const mx::array scale = mx::maximum(mx::multiply(norm(a), mx::transpose(norm(b), s), s),
                                        mx::array(static_cast<float>(kLeastCosineScale)), s);
    const mx::array dots = call.c_in ? product(a, bt, s) : mx::zeros(scale.shape(), mx::float32, s);
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

mx::array differences(const mx::array& a, const mx::array& b, int c, mx::StreamOrDevice s) {
  return mx::subtract(mx::slice(a, {0, c}, {a.shape(0), c + 1}, s),
                      mx::transpose(mx::slice(b, {0, c}, {b.shape(0), c + 1}, s), s), s);
}

graph::Arrays distance_vjp_formula(const graph::Arrays& in, mx::StreamOrDevice s) {
  const mx::array &a = in[0], &b = in[1], &w = in[2];
  if (a.size() == 0 || b.size() == 0)
    return {mx::zeros(a.shape(), mx::float32, s), mx::zeros(b.shape(), mx::float32, s)};
  std::vector<mx::array> to_a, to_b;
  for (int c = 0; c < a.shape(1); ++c) {
    const mx::array slope = mx::multiply(w, differences(a, b, c, s), s);
    to_a.push_back(mx::sum(slope, 1, true, s));
    to_b.push_back(mx::transpose(mx::negative(mx::sum(slope, 0, true, s), s), s));
  }
  return {mx::concatenate(to_a, 1, s), mx::concatenate(to_b, 1, s)};
}

graph::Arrays distance_vjp_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  return distance_vjp_formula(call.inputs, call.stream);
}

}  // namespace lattice
