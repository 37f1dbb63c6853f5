// adamw from plain MLX operations: MLX fuses what it likes, and memory is read more than once.
#include <mlx/ops.h>

#include "lattice/routes/adamw.h"

namespace lattice {

graph::Arrays adamw_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  const auto s = call.stream;
  const auto [b1, b2, eps] = call.get<Adamw>();
  const mx::array &p = call.inputs[0], &g = call.inputs[1], &m = call.inputs[2],
                  &v = call.inputs[3], &rates = call.inputs[4];
  const auto number = [](double x) { return mx::array(static_cast<float>(x)); };
  const auto moved = [&](double b, const mx::array& old, const mx::array& value) {
    return mx::add(mx::multiply(number(b), old, s), mx::multiply(number(1 - b), value, s), s);
  };
  const auto rate = [&](int i) { return mx::slice(rates, {i}, {i + 1}, s); };
  const mx::array m2 = moved(b1, m, g), v2 = moved(b2, v, mx::square(g, s));
  const mx::array below = mx::add(mx::multiply(rate(2), mx::sqrt(v2, s), s), mx::array(eps), s);
  const mx::array step = mx::divide(mx::multiply(rate(1), m2, s), below, s);
  const mx::array p2 = mx::subtract(mx::multiply(rate(0), p, s), step, s);
  return {mx::reshape(p2, p.shape(), s), m2, v2};
}

}  // namespace lattice
