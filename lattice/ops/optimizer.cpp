#include "lattice/ops/optimizer.h"

#include <mlx/ops.h>

#include <algorithm>
#include <bit>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/adamw.h"
#include "lattice/kernels/portable/optimizer_sizes.h"
#include "lattice/ops/device.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/kernel_call.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/optimizer.h"

namespace lattice {
namespace {

void check(const char* name, const mx::array& a, const mx::Shape& shape) {
  if (a.dtype() != mx::float32 || a.shape() != shape)
    fail("adamw_step", std::string(name) + " must be float32 of shape " + shape_text(shape) +
                           ", got " + graph::dtype_name(a.dtype()) + " of shape " +
                           shape_text(a.shape()));
}

using graph::Arrays;

// One kernel, a thread per value.
Arrays step_on_gpu(const Arrays& in, const AdamwBetas& betas, mx::StreamOrDevice s) {
  const int n = static_cast<int>(in[0].size());
  if (n == 0) return {in[0], in[2], in[3]};
  const mx::array rates =
      in[4].shape(0) == 5 ? in[4] : mx::concatenate({in[4], mx::ones({2}, mx::float32, s)}, 0, s);
  routes::KernelCall kernel("adamw", "optimizer");
  kernel.add("p", in[0]), kernel.add("g", in[1]), kernel.add("m", in[2]), kernel.add("v", in[3]);
  kernel.add("rates", rates);
  for (const char* name : {"p2", "m2", "v2"}) kernel.add_output(name, {in[0].shape(), mx::float32});
  const auto number = [](double x) { return static_cast<float>(x); };
  kernel.add_sizes("AdamwSizes", AdamwSizes{number(betas.b1), number(1 - betas.b1),
                                            number(betas.b2), number(1 - betas.b2), betas.eps});
  kernel.enter("adamw",
               "lattice::adamw_arrays(p, g, m, v, rates), p2, m2, v2, sizes, "
               "thread_position_in_grid.x");
  kernel.call.grid = {n, 1, 1};
  kernel.call.threadgroup = {std::min(n, 256), 1, 1};
  return kernel.run(s);
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
        const bool guarded = in[4].size == 5;
        if (guarded && rate[3] == 0) {
          for (size_t i = 0; i < 3; ++i)
            std::copy_n(in[i == 0 ? 0 : i + 1].as<float>(), in[0].size, out[i].as<float>());
          return;
        }
        cpu::adamw(in[0].size,
                   {in[0].as<float>(), in[1].as<float>(), in[2].as<float>(), in[3].as<float>(),
                    out[0].as<float>(), out[1].as<float>(), out[2].as<float>(), rate[0], rate[1],
                    rate[2], betas.eps, guarded ? rate[4] : 1.0f, betas.b1, betas.b2});
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
  check("rates", rates, {rates.ndim() == 1 && rates.shape(0) == 5 ? 5 : 3});
  const Arrays in = {parameter, gradient, m, v, rates};
  return on_gpu(s) ? step_on_gpu(in, betas, s) : step_on_cpu(in, betas, s);
}

mx::array all_finite(const std::vector<mx::array>& arrays, mx::StreamOrDevice s) {
  for (const mx::array& a : arrays)
    if (a.dtype() != mx::float32 && a.dtype() != mx::float16 && a.dtype() != mx::bfloat16)
      fail("all_finite",
           "arrays must be float32, float16 or bfloat16, got " + graph::dtype_name(a.dtype()));
  return routes::run(routes::all_finite_rows(), {arrays, s});
}

std::vector<mx::array> running_statistics(const std::vector<mx::array>& in, double momentum,
                                          double wider) {
  const int n = static_cast<int>(in[0].size());
  routes::KernelCall kernel("running_statistics", "optimizer");
  const char* names[] = {"old_mean", "old_var", "mean", "var"};
  for (size_t i = 0; i < 4; ++i) kernel.add(names[i], in[i]);
  for (const char* name : {"new_mean", "new_var"})
    kernel.add_output(name, {in[0].shape(), mx::float32});
  kernel.add_sizes("RunningSizes",
                   RunningSizes{static_cast<float>(1 - momentum), static_cast<float>(momentum),
                                static_cast<float>(wider)});
  kernel.enter("running_statistics",
               "old_mean, old_var, mean, var, new_mean, new_var, sizes, thread_position_in_grid.x");
  kernel.call.grid = {n, 1, 1};
  kernel.call.threadgroup = {std::min(n, 256), 1, 1};
  return kernel.run({});
}

}  // namespace lattice
