// Batch norm with the sum and the ReLU that follow it in residual networks, and its gradient: the
// questions, and the functions that launch the answers.
//
//   y = relu((x - mean) / sqrt(var + eps) * weight + bias + residual)
//   g' = g where y > 0;  s0 = sum g',  s1 = sum g' (x - mean),  r = 1 / sqrt(var + eps)
//   d bias = s0,  d weight = r s1,  d residual = g'
//   dx = weight r g'                                                     statistics given
//   dx = weight r (g' - s0 / n - (x - mean) r^2 s1 / n)                  statistics of the rows
#pragma once

#include <mlx/ops.h>

#include <algorithm>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/graph/output_spec.h"
#include "lattice/routes/decide.h"

namespace lattice {

// Inputs: x, weight, bias, then mean and var if given, then the residual if there is one.
struct Norm {
  bool given = false, residual = false, relu = false;
  float eps = 0;
  size_t residual_at() const { return given ? 5 : 3; }
  size_t inputs() const { return residual_at() + (residual ? 1 : 0); }
};

// {y, mean, var} in MLX operations, differentiable as they are. sum(x): (N, C) -> (C,).
template <typename Sum>
graph::Arrays norm_formula(const Norm& n, const graph::Arrays& in, const Sum& sum,
                           mx::StreamOrDevice s) {
  const mx::array x = as_float32(in[0], s), rows(static_cast<float>(std::max(x.shape(0), 1)));
  const mx::array mean = n.given ? as_float32(in[3], s) : mx::divide(sum(x), rows, s);
  const mx::array var = n.given ? as_float32(in[4], s)
                                : mx::divide(sum(mx::square(mx::subtract(x, mean, s), s)), rows, s);
  const mx::array scale =
      mx::multiply(mx::rsqrt(mx::add(var, mx::array(n.eps), s), s), as_float32(in[1], s), s);
  mx::array y = mx::add(mx::multiply(mx::subtract(x, mean, s), scale, s), as_float32(in[2], s), s);
  if (n.residual) y = mx::add(y, as_float32(in[n.residual_at()], s), s);
  if (n.relu) y = mx::maximum(y, mx::array(0.0f), s);
  return {mx::astype(y, in[0].dtype(), s), mean, var};
}

namespace routes {

struct NormAsked {
  Norm norm;
  graph::Arrays in;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};
// Cotangents of the inputs. Behind the inputs of the norm `in` has the cotangent of y, y, mean and
// var.
struct NormVjpAsked {
  Norm norm;
  graph::Arrays in;
  mx::StreamOrDevice stream = {};
  const mx::array& g() const { return in[norm.inputs()]; }
  const mx::array& y() const { return in[norm.inputs() + 1]; }
  const mx::array& mean() const { return in[norm.inputs() + 2]; }
  const mx::array& var() const { return in[norm.inputs() + 3]; }
  Facts facts() const;
  std::string variant() const;
};

const Table<NormAsked, graph::Arrays>& norm_rows();
const Table<NormVjpAsked, graph::Arrays>& norm_vjp_rows();
std::vector<NormAsked> probe_cases(const NormAsked& like);
std::vector<NormVjpAsked> probe_cases(const NormVjpAsked& like);

// {y, mean, var}. On the CPU two passes over memory, one if the statistics are given.
graph::Arrays norm_on_cpu(const NormAsked& asked);
graph::Arrays norm_with_metal(const NormAsked& asked);
graph::Arrays norm_with_mlx(const NormAsked& asked);
// On the CPU two passes over memory.
graph::Arrays norm_vjp_on_cpu(const NormVjpAsked& asked);
graph::Arrays norm_vjp_with_metal(const NormVjpAsked& asked);
graph::Arrays norm_vjp_with_mlx(const NormVjpAsked& asked);

}  // namespace routes
}  // namespace lattice
