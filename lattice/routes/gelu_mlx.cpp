// gelu from plain MLX operations, in float32.
#include <mlx/ops.h>

#include <cmath>
#include <numbers>

#include "lattice/routes/gelu.h"

namespace lattice {

mx::array gelu_formula(const mx::array& x, bool slope, mx::StreamOrDevice s) {
  const auto number = [](double v) { return mx::array(static_cast<float>(v)); };
  const mx::array v = mx::astype(x, mx::float32, s);
  const mx::array below = mx::multiply(
      number(0.5),
      mx::add(number(1), mx::erf(mx::multiply(v, number(std::numbers::sqrt2 / 2), s), s), s), s);
  if (!slope) return mx::astype(mx::multiply(v, below, s), x.dtype(), s);
  const mx::array bell =
      mx::multiply(number(std::sqrt(std::numbers::inv_pi / 2)),
                   mx::exp(mx::multiply(number(-0.5), mx::square(v, s), s), s), s);
  return mx::astype(mx::add(below, mx::multiply(v, bell, s), s), x.dtype(), s);
}

mx::array gelu_with_mlx(const Call& call) {
  return gelu_formula(call.inputs[0], call.get<Gelu>().slope, call.stream);
}

}  // namespace lattice
