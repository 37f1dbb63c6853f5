// Rotary position encoding (kernels/cpu/features/rotary.h): checks, launches and derivative rules.
// A rotation is linear, and its adjoint is the rotation by the negative angle.
#include <mlx/ops.h>

#include <bit>
#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/rotary.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/check.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

using graph::Arrays;

struct Rotary {
  mx::array positions;  // (rows, axes) float32
  double base = 0;
  bool halves = false;
  bool inverse = false;
};

mx::array with_mlx(const mx::array& x, const Rotary& r, mx::StreamOrDevice s) {
  const int n = x.shape(0), heads = x.shape(1), size = x.shape(2), axes = r.positions.shape(1),
            pairs = size / (2 * axes), rotated = 2 * pairs * axes;
  if (x.size() == 0 || pairs == 0) return x;
  std::vector<float> frequencies;
  for (int m = 0; m < pairs; ++m)
    frequencies.push_back(static_cast<float>(std::pow(r.base, -double(m) / double(pairs))));
  const mx::array angles =
      mx::reshape(mx::multiply(mx::expand_dims(r.positions, 2, s),
                               mx::array(frequencies.data(), {1, 1, pairs}, mx::float32), s),
                  {n, 1, pairs * axes, 1}, s);
  const mx::array c = mx::cos(angles, s),
                  d = r.inverse ? mx::negative(mx::sin(angles, s), s) : mx::sin(angles, s);
  const mx::array values = as_float32(x, s);
  // (n, heads, pairs of all axes, 2): neighbors lie so; halves have the 2 before the pairs.
  const mx::array turned = mx::slice(values, {0, 0, 0}, {n, heads, rotated}, s);
  const auto swapped = [&](const mx::array& a, int rows, int columns) {
    const mx::array split = mx::reshape(a, {n, heads, axes, rows, columns}, s);
    return mx::reshape(mx::transpose(split, {0, 1, 2, 4, 3}, s), {n, heads, pairs * axes * 2}, s);
  };
  const mx::array part =
      mx::reshape(r.halves ? swapped(turned, 2, pairs) : turned, {n, heads, pairs * axes, 2}, s);
  const mx::array x0 = mx::slice(part, {0, 0, 0, 0}, {n, heads, pairs * axes, 1}, s),
                  x1 = mx::slice(part, {0, 0, 0, 1}, {n, heads, pairs * axes, 2}, s);
  const mx::array y0 = mx::subtract(mx::multiply(x0, c, s), mx::multiply(x1, d, s), s),
                  y1 = mx::add(mx::multiply(x0, d, s), mx::multiply(x1, c, s), s);
  mx::array y = mx::reshape(mx::concatenate({y0, y1}, 3, s), {n, heads, rotated}, s);
  if (r.halves) y = swapped(y, pairs, 2);
  if (rotated < size)
    y = mx::concatenate({y, mx::slice(values, {0, 0, rotated}, {n, heads, size}, s)}, 2, s);
  return mx::astype(y, x.dtype(), s);
}

mx::array on_cpu(const mx::array& x, const Rotary& r, mx::StreamOrDevice s) {
  const std::string key = std::to_string(std::bit_cast<uint64_t>(r.base)) +
                          (r.inverse ? "/inverse" : "/forward") +
                          (r.halves ? "/halves" : "/neighbors");
  return graph::cpu_call(
      "rotary", key, routes::contiguous({x, r.positions}, s), {{x.shape(), x.dtype()}},
      [base = r.base, inverse = r.inverse, halves = r.halves](std::span<const graph::Input> in,
                                                              std::span<const graph::Output> out) {
        const mx::Shape& shape = in[0].shape;
        cpu::rotary({routes::float_type_of(in[0].dtype), shape[0], shape[1], shape[2],
                     in[1].shape[1], base, inverse, halves},
                    in[0].data, in[1].as<float>(), out[0].data);
      },
      s)[0];
}

mx::array rotated(const mx::array& x, const Rotary& r, mx::StreamOrDevice s) {
  Rotary back = r;
  back.inverse = !r.inverse;
  const auto forward = [=](const Arrays& in) {
    return Arrays{on_gpu(s) ? with_mlx(in[0], r, s) : on_cpu(in[0], r, s)};
  };
  const auto vjp = [=](const Arrays&, const Arrays& ct, const Arrays&) {
    return Arrays{rotated(ct[0], back, s)};
  };
  const auto jvp = [=](const Arrays&, const Arrays& t) { return Arrays{rotated(t[0], r, s)}; };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace

mx::array rotary(const mx::array& x, const mx::array& positions, double base, bool halves,
                 mx::StreamOrDevice s) {
  constexpr const char* kName = "rotary";
  if (x.ndim() != 3) fail(kName, "x must have shape (N, heads, D), got " + shape_text(x.shape()));
  check_float(kName, x);
  if (positions.ndim() != 2 || positions.shape(0) != x.shape(0) || positions.shape(1) < 1 ||
      positions.shape(1) > 3)
    fail(kName, "positions must have shape (" + std::to_string(x.shape(0)) +
                    ", axes) with 1 to 3 axes, got " + shape_text(positions.shape()));
  if (positions.dtype() == mx::bool_ || positions.dtype() == mx::complex64)
    fail(kName, "positions must hold numbers, got " + graph::dtype_name(positions.dtype()));
  if (!std::isfinite(base) || base <= 0)
    fail(kName, "base must be positive, got " + std::to_string(base));
  if (x.size() == 0) return x;
  return rotated(x, {mx::stop_gradient(as_float32(positions, s), s), base, halves}, s);
}

}  // namespace lattice
