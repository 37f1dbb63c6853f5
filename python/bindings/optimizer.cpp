// Optimizers. Arguments only.
#include "lattice/ops/optimizer.h"

#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_optimizer(nb::module_& m) {
  using Array = const mx::array&;
  def(
      m, "adamw_step",
      [](Array parameter, Array gradient, Array first, Array second, Array rates, double b1,
         double b2, float eps, mx::StreamOrDevice s) {
        return adamw_step(parameter, gradient, first, second, rates, {b1, b2, eps}, s);
      },
      "parameter"_a, "gradient"_a, "m"_a, "v"_a, "rates"_a, "b1"_a, "b2"_a, "eps"_a, "stream"_a);
  def(
      m, "all_finite",
      [](const std::vector<mx::array>& arrays, mx::StreamOrDevice s) {
        return all_finite(arrays, s);
      },
      "arrays"_a, "stream"_a);
}
