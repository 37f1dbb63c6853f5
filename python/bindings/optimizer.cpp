// Optimizers. Arguments only.
#include "lattice/ops/optimizer.h"

#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_optimizer(nb::module_& m) {
  m.def(
      "adamw_step",
      [](const mx::array& parameter, const mx::array& gradient, const mx::array& m,
         const mx::array& v, const mx::array& rates, double b1, double b2, float eps,
         mx::StreamOrDevice stream) {
        return adamw_step(parameter, gradient, m, v, rates, {b1, b2, eps}, stream);
      },
      "parameter"_a, "gradient"_a, "m"_a, "v"_a, "rates"_a, nb::kw_only(), "b1"_a = 0.9,
      "b2"_a = 0.999, "eps"_a = 1e-8f, "stream"_a = nb::none(),
      "(parameter, m, v) after one step of AdamW; rates holds decay, rate and correction.");
}
