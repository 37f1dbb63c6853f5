// Optimizers. Arguments only.
#include "lattice/ops/optimizer.h"

#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_optimizer(nb::module_& m) {
  m.def("adamw_step", &adamw_step, "parameter"_a, "gradient"_a, "m"_a, "v"_a, "rates"_a,
        nb::kw_only(), "b1"_a = 0.9, "b2"_a = 0.999, "eps"_a = 1e-8f, "stream"_a = nb::none(),
        "(parameter, m, v) after one step of AdamW; rates holds decay, rate and correction.");
}
