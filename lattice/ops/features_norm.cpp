// Batch norm with the sum and the ReLU that follow it in residual networks: its derivatives. The
// rows of routes/norm.h compute; tangents and second derivatives come from the formula
// in MLX operations.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/graph/differentiable.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/features.h"
#include "lattice/routes/norm.h"

namespace lattice {
namespace {

using graph::Arrays;

// y in MLX operations.
Arrays formula(const Norm& n, const Arrays& in, mx::StreamOrDevice s) {
  return {norm_formula(n, in, [s](const mx::array& x) { return sum_rows(x, s); }, s)[0]};
}

// A function of (inputs, g) whose own derivatives are those of the formula's gradient. The results
// of the forward pass are passed along.
Arrays backward(const Norm& n, const Arrays& in, const mx::array& g, const Arrays& made,
                mx::StreamOrDevice s) {
  const auto count = static_cast<int64_t>(n.inputs());
  Arrays all = in;
  all.push_back(g);
  all.insert(all.end(), made.begin(), made.end());
  const auto forward = [=](const Arrays& a) {
    return routes::run(routes::norm_vjp_rows(), {n, a, s});
  };
  const auto twice = [=](const Arrays& a) {
    return mx::vjp([&](const Arrays& x) { return formula(n, x, s); },
                   Arrays(a.begin(), a.begin() + count), {a[n.inputs()]})
        .second;
  };
  const auto head = [count](const Arrays& a) { return Arrays(a.begin(), a.begin() + count + 1); };
  const auto vjp = [=](const Arrays& a, const Arrays& ct, const Arrays&) {
    Arrays grads = mx::vjp(twice, head(a), ct).second;
    for (size_t i = n.inputs() + 1; i < a.size(); ++i) grads.push_back(mx::zeros_like(a[i], s));
    return grads;
  };
  const auto jvp = [=](const Arrays& a, const Arrays& t) {
    return mx::jvp(twice, head(a), head(t)).second;
  };
  return graph::differentiable(all, forward, vjp, jvp);
}

Normalized normalize(const Norm& n, const Arrays& inputs, mx::StreamOrDevice s) {
  const auto forward = [=](const Arrays& in) {
    return routes::run(routes::norm_rows(), {n, in, s});
  };
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays& out) {
    return backward(n, in, ct[0], {out[0], out[1], out[2]}, s);
  };
  const auto jvp = [=](const Arrays& in, const Arrays& t) {
    Arrays tangents = mx::jvp([&](const Arrays& a) { return formula(n, a, s); }, in, t).second;
    for (int i = 0; i < 2; ++i) tangents.push_back(mx::zeros({in[0].shape(1)}, mx::float32, s));
    return tangents;
  };
  const Arrays out = graph::differentiable(inputs, forward, vjp, jvp);
  return {out[0], mx::stop_gradient(out[1], s), mx::stop_gradient(out[2], s)};
}

}  // namespace

Normalized launch_batch_norm(const mx::array& x, const Affine& affine,
                             const std::optional<mx::array>& mean,
                             const std::optional<mx::array>& var, const NormOptions& options,
                             mx::StreamOrDevice s) {
  const Norm n{mean.has_value(), options.residual.has_value(), options.relu, options.eps};
  const mx::Shape channels = {x.shape(1)};
  Arrays inputs = {x, affine.weight ? *affine.weight : mx::ones(channels, mx::float32, s),
                   affine.bias ? *affine.bias : mx::zeros(channels, mx::float32, s)};
  if (n.given) inputs.insert(inputs.end(), {*mean, *var});
  if (n.residual) inputs.push_back(*options.residual);
  return normalize(n, inputs, s);
}

}  // namespace lattice
