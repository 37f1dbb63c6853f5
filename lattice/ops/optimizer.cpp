#include "lattice/ops/optimizer.h"

#include <mlx/ops.h>

#include <bit>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/adamw.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

void check(const char* name, const mx::array& a, const mx::Shape& shape) {
  if (a.dtype() != mx::float32 || a.shape() != shape)
    fail("adamw_step", std::string(name) + " must be float32 of shape " + shape_text(shape) +
                           ", got " + graph::dtype_name(a.dtype()) + " of shape " +
                           shape_text(a.shape()));
}

using graph::Arrays;

// Inputs are the parameter, its gradient, m, v and the rates; the results are the parameter, m and
// v after the step. MLX fuses what it likes and reads memory more than once.
Arrays step_with_mlx(const Arrays& in, const AdamwBetas& betas, mx::StreamOrDevice s) {
  const mx::array &p = in[0], &g = in[1], &m = in[2], &v = in[3], &rates = in[4];
  const auto number = [](double x) { return mx::array(static_cast<float>(x)); };
  const auto moved = [&](double b, const mx::array& old, const mx::array& value) {
    return mx::add(mx::multiply(number(b), old, s), mx::multiply(number(1 - b), value, s), s);
  };
  const auto rate = [&](int i) { return mx::slice(rates, {i}, {i + 1}, s); };
  const mx::array m2 = moved(betas.b1, m, g), v2 = moved(betas.b2, v, mx::square(g, s));
  const mx::array below =
      mx::add(mx::multiply(rate(2), mx::sqrt(v2, s), s), mx::array(betas.eps), s);
  const mx::array step = mx::divide(mx::multiply(rate(1), m2, s), below, s);
  const mx::array p2 = mx::subtract(mx::multiply(rate(0), p, s), step, s);
  return {mx::reshape(p2, p.shape(), s), m2, v2};
}

// One pass over memory.
Arrays step_on_cpu(const Arrays& in, const AdamwBetas& betas, mx::StreamOrDevice s) {
  std::string key;
  for (const double f : {betas.b1, betas.b2, double{betas.eps}})
    key += std::to_string(std::bit_cast<uint64_t>(f)) + "/";
  return graph::cpu_call(
      "adamw", key, routes::contiguous(in, s),
      std::vector<graph::OutputSpec>(3, {in[0].shape(), mx::float32}),
      [betas](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const float* rate = in[4].as<float>();
        cpu::adamw(in[0].size,
                   {in[0].as<float>(), in[1].as<float>(), in[2].as<float>(), in[3].as<float>(),
                    out[0].as<float>(), out[1].as<float>(), out[2].as<float>(), rate[0], rate[1],
                    rate[2], betas.eps, betas.b1, betas.b2});
      },
      s);
}

}  // namespace

std::vector<mx::array> adamw_step(const mx::array& parameter, const mx::array& gradient,
                                  const mx::array& m, const mx::array& v, const mx::array& rates,
                                  const AdamwBetas& betas, mx::StreamOrDevice s) {
  const mx::Shape shape = parameter.shape();
  check("parameter", parameter, shape);
  check("gradient", gradient, shape);
  check("m", m, shape);
  check("v", v, shape);
  check("rates", rates, {3});
  const Arrays in = {parameter, gradient, m, v, rates};
  return on_gpu(s) ? step_with_mlx(in, betas, s) : step_on_cpu(in, betas, s);
}

}  // namespace lattice
