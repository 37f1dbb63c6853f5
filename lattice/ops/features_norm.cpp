// Batch norm with the sum and the ReLU that follow it in residual networks, as one pass over
// memory, and its derivative as two. `plain` says the same in MLX operations: it serves the GPU,
// tangents and second derivatives.
//
//   y = relu((x - mean) / sqrt(var + eps) * weight + bias + residual)
//   g' = g where y > 0;  s0 = sum g',  s1 = sum g' (x - mean),  r = 1 / sqrt(var + eps)
//   d bias = s0,  d weight = r s1,  d residual = g'
//   dx = weight r g'                                                     statistics given
//   dx = weight r (g' - s0 / n - (x - mean) r^2 s1 / n)                  statistics of the rows
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <bit>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/differentiable.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/norm.h"
#include "lattice/ops/features.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

using graph::Arrays;

// What is fixed about one call. Arrays: x, weight, bias, then mean and var if given, then the
// residual if there is one.
struct Norm {
  bool given, residual, relu;
  float eps;
  mx::StreamOrDevice s;

  size_t residual_at() const { return given ? 5 : 3; }
  size_t inputs() const { return residual_at() + (residual ? 1 : 0); }
  std::string key() const {
    return std::to_string(given) + "/" + std::to_string(residual) + "/" + std::to_string(relu) +
           "/" + std::to_string(std::bit_cast<uint32_t>(eps));
  }
  bool on_gpu() const { return graph::on_gpu(s); }
};

mx::array wide(const mx::array& a, mx::StreamOrDevice s) { return mx::astype(a, mx::float32, s); }
cpu::Rows rows_of(const graph::Input& x) {
  return {float_type_of(x.dtype), x.shape[0], x.shape[1]};
}

// {y, mean, var}
Arrays plain(const Norm& n, const Arrays& in) {
  const mx::StreamOrDevice s = n.s;
  const auto [mean, var] =
      n.given ? std::pair(wide(in[3], s), wide(in[4], s)) : feature_statistics(in[0], s);
  const mx::array scale =
      mx::multiply(mx::rsqrt(mx::add(var, mx::array(n.eps), s), s), wide(in[1], s), s);
  mx::array y =
      mx::add(mx::multiply(mx::subtract(wide(in[0], s), mean, s), scale, s), wide(in[2], s), s);
  if (n.residual) y = mx::add(y, wide(in[n.residual_at()], s), s);
  if (n.relu) y = mx::maximum(y, mx::array(0.0f), s);
  return {mx::astype(y, in[0].dtype(), s), mean, var};
}

Arrays forward(const Norm& n, const Arrays& in) {
  if (n.on_gpu()) return plain(n, in);
  const mx::StreamOrDevice s = n.s;
  const mx::array x = graph::row_contiguous(in[0], s);
  const mx::Shape channels = {x.shape(1)};
  Arrays moments;
  if (n.given)
    moments = {wide(in[3], s), wide(in[4], s)};
  else
    moments = graph::cpu_call(
        "moments", "", {x}, {{channels, mx::float32}, {channels, mx::float32}},
        [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
          cpu::moments(rows_of(in[0]), in[0].data, out[0].as<float>(), out[1].as<float>());
        },
        s);
  const mx::array scale =
      mx::multiply(mx::rsqrt(mx::add(moments[1], mx::array(n.eps), s), s), wide(in[1], s), s);
  Arrays inputs = {x};
  for (const mx::array& v : {moments[0], scale, wide(in[2], s)})
    inputs.push_back(graph::row_contiguous(v, s));
  if (n.residual) inputs.push_back(graph::row_contiguous(in[n.residual_at()], s));
  const mx::array y = graph::cpu_call(
      "norm_rows", n.key(), std::move(inputs), {{x.shape(), x.dtype()}},
      [relu = n.relu](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::norm_rows(rows_of(in[0]),
                       {in[0].data, in[1].as<float>(), in[2].as<float>(), in[3].as<float>(),
                        in.size() == 5 ? in[4].data : nullptr, relu, out[0].data});
      },
      s)[0];
  return {y, moments[0], moments[1]};
}

// Cotangents of the inputs for cotangent g of y.
Arrays plain_back(const Norm& n, const Arrays& in, const mx::array& g) {
  return mx::vjp([&](const Arrays& a) { return Arrays{plain(n, a)[0]}; }, in, {g}).second;
}

Arrays fused_back(const Norm& n, const Arrays& in, const mx::array& g, const Arrays& made) {
  const mx::StreamOrDevice s = n.s;
  const auto times = [&](const mx::array& a, const mx::array& b) { return mx::multiply(a, b, s); };
  const mx::array x = graph::row_contiguous(in[0], s), gradient = graph::row_contiguous(g, s);
  const mx::array mean = graph::row_contiguous(made[1], s);
  const mx::Shape channels = {x.shape(1)};
  Arrays inputs = {x, gradient, mean};
  if (n.relu) inputs.push_back(graph::row_contiguous(made[0], s));
  const Arrays sums = graph::cpu_call(
      "norm_sums", n.key(), inputs, {{channels, mx::float32}, {channels, mx::float32}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::norm_sums(rows_of(in[0]), in[0].data, in[1].data,
                       in.size() == 4 ? in[3].data : nullptr, in[2].as<float>(), out[0].as<float>(),
                       out[1].as<float>());
      },
      s);
  const mx::array r = mx::rsqrt(mx::add(made[2], mx::array(n.eps), s), s),
                  a = times(r, wide(in[1], s));
  const mx::array cubed = times(a, times(r, r)), none = mx::zeros(channels, mx::float32, s);
  const mx::array share(-1.0f / static_cast<float>(std::max(x.shape(0), 1)));
  const mx::array b = n.given ? none : times(share, times(cubed, sums[1]));
  const mx::array d = n.given ? none : times(share, times(a, sums[0]));
  for (const mx::array& v : {a, b, d}) inputs.push_back(graph::row_contiguous(v, s));
  const bool keep = n.residual && n.relu;
  std::vector<graph::OutputSpec> specs(keep ? 2 : 1, {x.shape(), x.dtype()});
  const Arrays back = graph::cpu_call(
      "norm_back", n.key(), std::move(inputs), std::move(specs),
      [relu = n.relu](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const size_t v = relu ? 4 : 3;
        cpu::norm_back(rows_of(in[0]),
                       {in[0].data, in[1].data, relu ? in[3].data : nullptr, in[2].as<float>(),
                        in[v].as<float>(), in[v + 1].as<float>(), in[v + 2].as<float>(),
                        out[0].data, out.size() == 2 ? out[1].data : nullptr});
      },
      s);
  Arrays grads = {back[0], mx::astype(times(r, sums[1]), in[1].dtype(), s),
                  mx::astype(sums[0], in[2].dtype(), s)};
  if (n.given) {
    grads.push_back(mx::astype(times(mx::array(-1.0f), times(a, sums[0])), in[3].dtype(), s));
    grads.push_back(mx::astype(times(mx::array(-0.5f), times(cubed, sums[1])), in[4].dtype(), s));
  }
  if (n.residual) grads.push_back(keep ? back[1] : g);
  return grads;
}

// A function of (inputs, g) whose own derivatives are those of plain_back. What the forward pass
// made rides along.
Arrays backward(const Norm& n, const Arrays& in, const mx::array& g, const Arrays& made) {
  if (n.on_gpu()) return plain_back(n, in, g);
  const size_t count = n.inputs();
  Arrays all = in;
  all.push_back(g);
  all.insert(all.end(), made.begin(), made.end());
  const auto split = [count](const Arrays& a) {
    return Arrays(a.begin(), a.begin() + static_cast<int64_t>(count));
  };
  const auto run = [=](const Arrays& a) {
    return fused_back(n, split(a), a[count], {a[count + 1], a[count + 2], a[count + 3]});
  };
  const auto twice = [=](const Arrays& a) { return plain_back(n, split(a), a[count]); };
  const auto head = [count](const Arrays& a) {
    return Arrays(a.begin(), a.begin() + static_cast<int64_t>(count) + 1);
  };
  const auto vjp = [=](const Arrays& a, const Arrays& ct, const Arrays&) {
    Arrays grads = mx::vjp(twice, head(a), ct).second;
    for (size_t i = count + 1; i < a.size(); ++i) grads.push_back(mx::zeros_like(a[i], n.s));
    return grads;
  };
  const auto jvp = [=](const Arrays& a, const Arrays& t) {
    return mx::jvp(twice, head(a), head(t)).second;
  };
  return graph::differentiable(all, run, vjp, jvp);
}

Normalized normalize(const Norm& n, const Arrays& inputs) {
  const auto run = [n](const Arrays& in) { return forward(n, in); };
  const auto vjp = [n](const Arrays& in, const Arrays& ct, const Arrays& out) {
    return backward(n, in, ct[0], {out[0], out[1], out[2]});
  };
  const auto jvp = [n](const Arrays& in, const Arrays& t) {
    Arrays tangents =
        mx::jvp([&](const Arrays& a) { return Arrays{plain(n, a)[0]}; }, in, t).second;
    for (int i = 0; i < 2; ++i) tangents.push_back(mx::zeros({in[0].shape(1)}, mx::float32, n.s));
    return tangents;
  };
  const Arrays out = graph::differentiable(inputs, run, vjp, jvp);
  return {out[0], mx::stop_gradient(out[1], n.s), mx::stop_gradient(out[2], n.s)};
}

}  // namespace

Normalized launch_batch_norm(const mx::array& x, const Affine& affine,
                             const std::optional<mx::array>& mean,
                             const std::optional<mx::array>& var, const NormOptions& options,
                             mx::StreamOrDevice s) {
  const Norm n{mean.has_value(), options.residual.has_value(), options.relu, options.eps, s};
  const mx::Shape channels = {x.shape(1)};
  Arrays inputs = {x, affine.weight ? *affine.weight : mx::ones(channels, mx::float32, s),
                   affine.bias ? *affine.bias : mx::zeros(channels, mx::float32, s)};
  if (n.given) inputs.insert(inputs.end(), {*mean, *var});
  if (n.residual) inputs.push_back(*options.residual);
  return normalize(n, inputs);
}

}  // namespace lattice
