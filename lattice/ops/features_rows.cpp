// GELU, layer norm and root-mean-square norm with their derivatives. The rows of gelu, row_norm and
// row_norm_vjp compute; tangents and second derivatives come from the formulas in MLX operations.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/graph/differentiable.h"
#include "lattice/ops/features.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/gelu.h"
#include "lattice/routes/row_norm.h"

namespace lattice {
namespace {

using graph::Arrays;

mx::array launch_gelu(const mx::array& x, bool slope, mx::StreamOrDevice s) {
  const int channels = x.ndim() == 2 ? x.shape(1) : 1;
  return run({.operation = Operation::gelu,
              .inputs = {x},
              .c_in = channels,
              .c_out = channels,
              .dtype = x.dtype(),
              .payload = Gelu{slope},
              .stream = s});
}

// The slope, whose own derivatives are those of the formula.
mx::array gelu_slope(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const Arrays& in) -> Arrays { return {launch_gelu(in[0], true, s)}; };
  const auto formula = [s](const Arrays& in) -> Arrays { return {gelu_formula(in[0], true, s)}; };
  const auto vjp = [formula](const Arrays& in, const Arrays& ct, const Arrays&) {
    return mx::vjp(formula, in, ct).second;
  };
  const auto jvp = [formula](const Arrays& in, const Arrays& t) {
    return mx::jvp(formula, in, t).second;
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

Arrays launch_norm(Operation operation, const RowScale& n, const Arrays& inputs,
                   mx::StreamOrDevice s) {
  return run_all({.operation = operation,
                  .inputs = inputs,
                  .c_in = inputs[0].shape(1),
                  .c_out = inputs[0].shape(1),
                  .dtype = inputs[0].dtype(),
                  .payload = n,
                  .stream = s});
}

// A function of (x, weight, bias, g) whose derivatives are those of the formula's gradient.
Arrays norm_gradients(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  const auto forward = [=](const Arrays& a) {
    return launch_norm(Operation::row_norm_vjp, n, a, s);
  };
  const auto formula = [=](const Arrays& a) {
    return mx::vjp([&](const Arrays& v) -> Arrays { return {row_norm_formula(n, v, s)}; },
                   Arrays(a.begin(), a.begin() + 3), {a[3]})
        .second;
  };
  const auto vjp = [formula](const Arrays& a, const Arrays& ct, const Arrays&) {
    return mx::vjp(formula, a, ct).second;
  };
  const auto jvp = [formula](const Arrays& a, const Arrays& t) {
    return mx::jvp(formula, a, t).second;
  };
  return graph::differentiable(in, forward, vjp, jvp);
}

}  // namespace

mx::array launch_gelu(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const Arrays& in) -> Arrays { return {launch_gelu(in[0], false, s)}; };
  const auto vjp = [s](const Arrays& in, const Arrays& ct, const Arrays&) -> Arrays {
    return {mx::multiply(ct[0], gelu_slope(in[0], s), s)};
  };
  const auto jvp = [s](const Arrays& in, const Arrays& t) -> Arrays {
    return {mx::multiply(t[0], gelu_slope(in[0], s), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

mx::array launch_row_norm(const mx::array& x, const Affine& affine, float eps, bool centered,
                          mx::StreamOrDevice s) {
  const RowScale n{eps, centered};
  const mx::Shape channels = {x.shape(1)};
  const Arrays inputs = {x, affine.weight ? *affine.weight : mx::ones(channels, mx::float32, s),
                         affine.bias ? *affine.bias : mx::zeros(channels, mx::float32, s)};
  const auto forward = [=](const Arrays& in) { return launch_norm(Operation::row_norm, n, in, s); };
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays&) {
    return norm_gradients(n, {in[0], in[1], in[2], ct[0]}, s);
  };
  const auto jvp = [=](const Arrays& in, const Arrays& t) {
    return mx::jvp([&](const Arrays& a) -> Arrays { return {row_norm_formula(n, a, s)}; }, in, t)
        .second;
  };
  return graph::differentiable(inputs, forward, vjp, jvp)[0];
}

}  // namespace lattice
