// row_norm and its gradient from plain MLX operations, in float32.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/routes/row_norm.h"

namespace lattice {

mx::array row_norm_formula(const RowScale& n, const graph::Arrays& in, mx::StreamOrDevice s) {
  mx::array x = as_float32(in[0], s);
  if (x.size() == 0) return in[0];
  if (n.centered) x = mx::subtract(x, mx::mean(x, 1, true, s), s);
  const mx::array square = mx::mean(mx::square(x, s), 1, true, s);
  const mx::array h = mx::multiply(x, mx::rsqrt(mx::add(square, mx::array(n.eps), s), s), s);
  const mx::array y = mx::add(mx::multiply(h, as_float32(in[1], s), s), as_float32(in[2], s), s);
  return mx::astype(y, in[0].dtype(), s);
}

mx::array row_norm_with_mlx(const Call& call) {
  return row_norm_formula(call.get<RowScale>(), call.inputs, call.stream);
}

graph::Arrays row_norm_vjp_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  const auto forward = [&](const graph::Arrays& in) -> graph::Arrays {
    return {row_norm_formula(call.get<RowScale>(), in, call.stream)};
  };
  const graph::Arrays in(call.inputs.begin(), call.inputs.begin() + 3);
  return mx::vjp(forward, in, {call.inputs[3]}).second;
}

}  // namespace lattice
