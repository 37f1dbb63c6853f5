#include "lattice/ops/columns.h"

#include <mlx/ops.h>

#include "lattice/graph/differentiable.h"
#include "lattice/routes/decide.h"

namespace lattice {

mx::array join_columns(const std::vector<mx::array>& parts, mx::StreamOrDevice s) {
  int columns = 0;
  for (const mx::array& part : parts) columns += part.shape(1);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run({.operation = Operation::join_columns,
                 .inputs = in,
                 .c_in = columns,
                 .c_out = columns,
                 .dtype = in[0].dtype(),
                 .payload = Columns{},
                 .stream = s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    graph::Arrays grads;
    int first = 0;
    for (const mx::array& part : in) {
      grads.push_back(take_columns(ct[0], first, part.shape(1), s));
      first += part.shape(1);
    }
    return grads;
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {join_columns(t, s)};
  };
  return graph::differentiable(parts, forward, vjp, jvp)[0];
}

mx::array take_columns(const mx::array& x, int first, int count, mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {run({.operation = Operation::take_columns,
                 .inputs = in,
                 .c_in = in[0].shape(1),
                 .c_out = count,
                 .dtype = in[0].dtype(),
                 .payload = Columns{first},
                 .stream = s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    const int rows = in[0].shape(0), behind = in[0].shape(1) - first - count;
    return {join_columns({mx::zeros({rows, first}, ct[0].dtype(), s), ct[0],
                          mx::zeros({rows, behind}, ct[0].dtype(), s)},
                         s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {take_columns(t[0], first, count, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
