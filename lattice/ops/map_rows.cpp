#include "lattice/ops/map_rows.h"

#include <mlx/ops.h>

#include <stdexcept>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

mx::array launch(const mx::array& x, const RowMap::Ptr& map, mx::StreamOrDevice s) {
  Call call;
  call.operation = "map_rows";
  call.dtype = x.dtype();
  call.inputs = {x};
  call.map = map;
  call.c_in = call.c_out = x.shape(1);
  call.stream = s;
  return run(call);
}

mx::array linear_map(const mx::array& x, const RowMap::Ptr& map, mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {launch(in[0], map, s)};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {linear_map(ct[0], map->transposed(), s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {linear_map(t[0], map, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

// Every x row belongs to one row of y at most. share = [x == its maximum] / number of ties, as a
// constant.
mx::array max_map(const mx::array& x, const RowMap::Ptr& map, mx::StreamOrDevice s) {
  const RowMap::Ptr sum = map->with(Reduction::sum), back = sum->transposed();
  const auto share = [=](const mx::array& values, const mx::array& most) {
    const mx::array tied =
        mx::astype(mx::equal(values, linear_map(most, back, s), s), mx::float32, s);
    const mx::array ties = mx::maximum(linear_map(tied, sum, s), mx::array(1.0f), s);
    return mx::stop_gradient(mx::divide(tied, linear_map(ties, back, s), s), s);
  };
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {launch(in[0], map, s)};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays& out) -> graph::Arrays {
    const mx::array wide = linear_map(mx::astype(ct[0], mx::float32, s), back, s);
    return {mx::astype(mx::multiply(share(in[0], out[0]), wide, s), in[0].dtype(), s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    const mx::array part = mx::multiply(share(in[0], launch(mx::stop_gradient(in[0], s), map, s)),
                                        mx::astype(t[0], mx::float32, s), s);
    return {mx::astype(linear_map(part, sum, s), in[0].dtype(), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace

mx::array map_rows(const mx::array& x, const RowMap::Ptr& map, std::string_view operation,
                   std::string_view what, mx::StreamOrDevice s) {
  if (x.ndim() != 2 || x.shape(0) != map->n_in())
    throw std::invalid_argument("[" + std::string(operation) + "] " + std::string(what) +
                                " must have shape (" + std::to_string(map->n_in()) + ", C), got " +
                                shape_text(x.shape()));
  graph::visit_float(x.dtype(), [](auto) {}, operation);
  return map->reduction() == Reduction::max ? max_map(x, map, s) : linear_map(x, map, s);
}

}  // namespace lattice
