// Rotary position encoding: checks and derivative rules. A rotation is linear, and its adjoint is
// the rotation by the negative angle.
#include <cmath>

#include "lattice/graph/differentiable.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/check.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/rotary.h"

namespace lattice {
namespace {

using graph::Arrays;

mx::array rotated(const mx::array& x, const Rotary& r, mx::StreamOrDevice s) {
  Rotary back = r;
  back.inverse = !r.inverse;
  const auto forward = [=](const Arrays& in) { return Arrays{run(rotary_call(in[0], r, s))}; };
  const auto vjp = [=](const Arrays&, const Arrays& ct, const Arrays&) {
    return Arrays{rotated(ct[0], back, s)};
  };
  const auto jvp = [=](const Arrays&, const Arrays& t) { return Arrays{rotated(t[0], r, s)}; };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace

mx::array rotary(const mx::array& x, const mx::array& positions, double base,
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
  return rotated(x, {mx::stop_gradient(as_float32(positions, s), s), base}, s);
}

}  // namespace lattice
