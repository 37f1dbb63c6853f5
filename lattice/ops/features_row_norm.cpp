// Layer norm and root-mean-square norm of each row over its channels, with their derivatives
// (kernels/cpu/features/row_norm.h). Tangents and second derivatives come from the formula in MLX
// operations.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <bit>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/kernels/cpu/features/row_norm.h"
#include "lattice/ops/features.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

using graph::Arrays;

// Inputs are x, weight and bias; of a gradient then the cotangent.
struct RowScale {
  float eps = 0;
  bool centered = true;
  std::string key() const {
    return std::to_string(std::bit_cast<uint32_t>(eps)) + (centered ? "/centered" : "");
  }
};

mx::array formula(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  mx::array x = as_float32(in[0], s);
  if (x.size() == 0) return in[0];
  if (n.centered) x = mx::subtract(x, mx::mean(x, 1, true, s), s);
  const mx::array square = mx::mean(mx::square(x, s), 1, true, s);
  const mx::array h = mx::multiply(x, mx::rsqrt(mx::add(square, mx::array(n.eps), s), s), s);
  const mx::array y = mx::add(mx::multiply(h, as_float32(in[1], s), s), as_float32(in[2], s), s);
  return mx::astype(y, in[0].dtype(), s);
}

// Cotangents of x, weight and bias.
Arrays formula_vjp(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  return mx::vjp([&](const Arrays& v) -> Arrays { return {formula(n, v, s)}; },
                 Arrays(in.begin(), in.begin() + 3), {in[3]})
      .second;
}

// x as it is, the vectors in float32, further inputs as they are.
Arrays prepared(Arrays in, mx::StreamOrDevice s) {
  in[1] = as_float32(in[1], s), in[2] = as_float32(in[2], s);
  return routes::contiguous(in, s);
}

cpu::Rows rows_of(const graph::Input& x) {
  return {routes::float_type_of(x.dtype), x.shape[0], x.shape[1]};
}

cpu::RowNorm norm_of(std::span<const graph::Input> in, const RowScale& n) {
  return {in[0].data, in[1].as<float>(), in[2].as<float>(), n.eps, n.centered};
}

// A row stays in the cache while it is normalized.
Arrays launch(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  if (on_gpu(s)) return {formula(n, in, s)};
  return graph::cpu_call(
      "row_norm", n.key(), prepared(in, s), {{in[0].shape(), in[0].dtype()}},
      [n](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::row_norm(rows_of(in[0]), norm_of(in, n), out[0].data);
      },
      s);
}

// The gradient of a row while it is in the cache, then sums over rows.
Arrays launch_vjp(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  if (on_gpu(s)) return formula_vjp(n, in, s);
  const mx::Shape shape = in[0].shape(), channels = {shape[1]};
  const Arrays back = graph::cpu_call(
      "row_norm_vjp", n.key(), prepared(in, s),
      {{shape, in[0].dtype()}, {channels, mx::float32}, {channels, mx::float32}},
      [n](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const cpu::Rows rows = rows_of(in[0]);
        cpu::Buffer<float> products(rows.rows * rows.channels);
        cpu::row_norm_back(rows, norm_of(in, n), in[3].data, out[0].data, products.data());
        cpu::sum_rows(cpu::FloatType::f32, products.data(), rows.rows, rows.channels, out[1].data);
        cpu::Buffer<float> cotangents(
            rows.storage == cpu::FloatType::f32 ? 0 : rows.rows * rows.channels);
        const void* g = in[3].data;
        if (!cotangents.empty()) {  // sums of 16-bit cotangents are float32 too
          cpu::visit_float_type(rows.storage, [&]<typename T>(T) {
            for (int64_t i = 0; i < cotangents.size(); ++i)
              cotangents[i] = cpu::widen(in[3].as<T>()[i]);
          });
          g = cotangents.data();
        }
        cpu::sum_rows(cpu::FloatType::f32, g, rows.rows, rows.channels, out[2].data);
      },
      s);
  return {back[0], mx::astype(back[1], in[1].dtype(), s), mx::astype(back[2], in[2].dtype(), s)};
}

// A function of (x, weight, bias, g) whose derivatives are those of the formula's gradient.
Arrays norm_gradients(const RowScale& n, const Arrays& in, mx::StreamOrDevice s) {
  const auto forward = [=](const Arrays& a) { return launch_vjp(n, a, s); };
  const auto plain = [=](const Arrays& a) { return formula_vjp(n, a, s); };
  const auto vjp = [plain](const Arrays& a, const Arrays& ct, const Arrays&) {
    return mx::vjp(plain, a, ct).second;
  };
  const auto jvp = [plain](const Arrays& a, const Arrays& t) {
    return mx::jvp(plain, a, t).second;
  };
  return graph::differentiable(in, forward, vjp, jvp);
}

}  // namespace

mx::array launch_row_norm(const mx::array& x, const Affine& affine, float eps, bool centered,
                          mx::StreamOrDevice s) {
  const RowScale n{eps, centered};
  const mx::Shape channels = {x.shape(1)};
  const Arrays inputs = {x, affine.weight ? *affine.weight : mx::ones(channels, mx::float32, s),
                         affine.bias ? *affine.bias : mx::zeros(channels, mx::float32, s)};
  const auto forward = [=](const Arrays& in) { return launch(n, in, s); };
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays&) {
    return norm_gradients(n, {in[0], in[1], in[2], ct[0]}, s);
  };
  const auto jvp = [=](const Arrays& in, const Arrays& t) {
    return mx::jvp([&](const Arrays& a) -> Arrays { return {formula(n, a, s)}; }, in, t).second;
  };
  return graph::differentiable(inputs, forward, vjp, jvp)[0];
}

}  // namespace lattice
