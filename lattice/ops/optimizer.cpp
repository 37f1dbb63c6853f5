#include "lattice/ops/optimizer.h"

#include <mlx/ops.h>

#include <bit>
#include <stdexcept>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/graph/dtype.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/adamw.h"

namespace lattice {
namespace {

void check(const char* name, const mx::array& a, const mx::Shape& shape) {
  if (a.dtype() != mx::float32 || a.shape() != shape)
    throw std::invalid_argument("[adamw_step] " + std::string(name) + " must be float32 of shape " +
                                shape_text(shape) + ", got " + graph::dtype_name(a.dtype()) +
                                " of " + shape_text(a.shape()));
}

// The same in MLX operations, for a GPU: it fuses what it likes, and memory is read more than once.
std::vector<mx::array> plain(const mx::array& p, const mx::array& g, const mx::array& m,
                             const mx::array& v, const mx::array& rates, double b1, double b2,
                             float eps, mx::StreamOrDevice s) {
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

}  // namespace

std::vector<mx::array> adamw_step(const mx::array& parameter, const mx::array& gradient,
                                  const mx::array& m, const mx::array& v, const mx::array& rates,
                                  double b1, double b2, float eps, mx::StreamOrDevice s) {
  const mx::Shape shape = parameter.shape();
  check("parameter", parameter, shape);
  check("gradient", gradient, shape);
  check("m", m, shape);
  check("v", v, shape);
  check("rates", rates, {3});
  if (graph::on_gpu(s)) return plain(parameter, gradient, m, v, rates, b1, b2, eps, s);
  std::string key;
  for (const double f : {b1, b2, double{eps}})
    key += std::to_string(std::bit_cast<uint64_t>(f)) + "/";
  std::vector<mx::array> inputs;
  for (const mx::array& a : {parameter, gradient, m, v, rates})
    inputs.push_back(graph::row_contiguous(a, s));
  return graph::cpu_call(
      "adamw", std::move(key), std::move(inputs),
      std::vector<graph::OutputSpec>(3, {shape, mx::float32}),
      [=](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const float* rate = in[4].as<float>();
        cpu::adamw(in[0].size, {in[0].as<float>(), in[1].as<float>(), in[2].as<float>(),
                                in[3].as<float>(), out[0].as<float>(), out[1].as<float>(),
                                out[2].as<float>(), rate[0], rate[1], rate[2], eps, b1, b2});
      },
      s);
}

}  // namespace lattice
