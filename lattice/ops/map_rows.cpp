#include "lattice/ops/map_rows.h"

#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

mx::array launch(const mx::array& x, const RowMap::Ptr& map, mx::StreamOrDevice s) {
  return routes::run(routes::map_rows_rows(), {x, map, s});
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

// Every x row belongs to one row of y at most. tie_share = [x == its maximum] / number of ties, as
// a constant.
mx::array max_map(const mx::array& x, const RowMap::Ptr& map, mx::StreamOrDevice s) {
  const RowMap::Ptr sum = map->with(Reduction::sum), back = sum->transposed();
  const auto tie_share = [=](const mx::array& values, const mx::array& most) {
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
    const mx::array slopes = linear_map(as_float32(ct[0], s), back, s);
    return {mx::astype(mx::multiply(tie_share(in[0], out[0]), slopes, s), in[0].dtype(), s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    const mx::array part =
        mx::multiply(tie_share(in[0], launch(mx::stop_gradient(in[0], s), map, s)),
                     mx::astype(t[0], mx::float32, s), s);
    return {mx::astype(linear_map(part, sum, s), in[0].dtype(), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace

mx::array map_rows(const mx::array& x, const RowMap::Ptr& map, std::string_view operation,
                   std::string_view what, mx::StreamOrDevice s) {
  check_features(operation, what, x, map->n_in());
  return map->reduction() == Reduction::max ? max_map(x, map, s) : linear_map(x, map, s);
}

}  // namespace lattice
