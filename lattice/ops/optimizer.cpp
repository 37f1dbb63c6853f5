#include "lattice/ops/optimizer.h"

#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

void check(const char* name, const mx::array& a, const mx::Shape& shape) {
  if (a.dtype() != mx::float32 || a.shape() != shape)
    fail("adamw_step", std::string(name) + " must be float32 of shape " + shape_text(shape) +
                           ", got " + graph::dtype_name(a.dtype()) + " of shape " +
                           shape_text(a.shape()));
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
  check("rates", rates, {3});
  return run_all({.operation = Operation::adamw,
                  .inputs = {parameter, gradient, m, v, rates},
                  .payload = Adamw{betas.b1, betas.b2, betas.eps},
                  .stream = s});
}

}  // namespace lattice
