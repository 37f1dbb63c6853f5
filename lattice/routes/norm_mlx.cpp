// batch_norm and its gradient from plain MLX operations.
#include <mlx/transforms.h>

#include "lattice/routes/columns.h"
#include "lattice/routes/norm.h"

namespace lattice {
namespace {

graph::Arrays formula(const Call& call, const graph::Arrays& in) {
  const auto sum = [s = call.stream](const mx::array& x) { return sum_rows_with_mlx(x, s); };
  return norm_formula(call.get<Norm>(), in, sum, call.stream);
}

}  // namespace

graph::Arrays batch_norm_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  return formula(call, call.inputs);
}

graph::Arrays batch_norm_vjp_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  const size_t n = call.get<Norm>().inputs();
  const graph::Arrays in(call.inputs.begin(), call.inputs.begin() + static_cast<int64_t>(n));
  return mx::vjp([&](const graph::Arrays& a) { return graph::Arrays{formula(call, a)[0]}; }, in,
                 {call.inputs[n]})
      .second;
}

}  // namespace lattice
