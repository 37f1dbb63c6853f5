// GELU and its slope, x Phi(x) and Phi(x) + x phi(x), with their derivatives.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cmath>
#include <numbers>

#include "lattice/kernels/cpu/features/gelu.h"
#include "lattice/ops/features.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

using graph::Arrays;

// In MLX operations, in float32, differentiable as they are.
mx::array formula(const mx::array& x, bool slope, mx::StreamOrDevice s) {
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

// One pass over memory on the CPU, where MLX's erf takes about 90 times the time of a copy.
mx::array launch(const mx::array& x, bool slope, mx::StreamOrDevice s) {
  if (on_gpu(s)) return formula(x, slope, s);
  return graph::cpu_call(
      "gelu", slope ? "slope" : "", routes::contiguous({x}, s), {{x.shape(), x.dtype()}},
      [slope](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::gelu(routes::float_type_of(in[0].dtype), in[0].size, in[0].data, slope, out[0].data);
      },
      s)[0];
}

// The slope, whose own derivatives are those of the formula.
mx::array gelu_slope(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const Arrays& in) -> Arrays { return {launch(in[0], true, s)}; };
  const auto plain = [s](const Arrays& in) -> Arrays { return {formula(in[0], true, s)}; };
  const auto vjp = [plain](const Arrays& in, const Arrays& ct, const Arrays&) {
    return mx::vjp(plain, in, ct).second;
  };
  const auto jvp = [plain](const Arrays& in, const Arrays& t) {
    return mx::jvp(plain, in, t).second;
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace

mx::array launch_gelu(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const Arrays& in) -> Arrays { return {launch(in[0], false, s)}; };
  const auto vjp = [s](const Arrays& in, const Arrays& ct, const Arrays&) -> Arrays {
    return {mx::multiply(ct[0], gelu_slope(in[0], s), s)};
  };
  const auto jvp = [s](const Arrays& in, const Arrays& t) -> Arrays {
    return {mx::multiply(t[0], gelu_slope(in[0], s), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
