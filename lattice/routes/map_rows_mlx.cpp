// map_rows from plain MLX operations.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/routes/pool.h"

namespace lattice::routes {

mx::array map_rows_with_mlx(const MapRowsAsked& asked) {
  const mx::StreamOrDevice s = asked.stream;
  const RowMap& map = *asked.map;
  const int n = static_cast<int>(map.n_out()), c = asked.x.shape(1);
  const int entries = static_cast<int>(map.n_entries());
  if (entries == 0 || c == 0 || map.n_in() == 0) return mx::zeros({n, c}, asked.x.dtype(), s);
  const mx::array rows = map.parts().rows;
  mx::array values =
      mx::take(mx::astype(asked.x, mx::float32, s), mx::maximum(rows, mx::array(0), s), 0, s);
  const mx::array missing = mx::expand_dims(mx::less(rows, mx::array(0), s), 1, s);
  values = mx::where(missing, mx::array(0.0f), values, s);
  if (map.parts().weights)
    values = mx::multiply(values, mx::expand_dims(*map.parts().weights, 1, s), s);
  const mx::array owners = map.entry_rows(), updates = mx::reshape(values, {entries, 1, c}, s);
  const bool max = map.reduction() == Reduction::max;
  mx::array out = mx::full({n, c}, max ? -INFINITY : 0.0f, mx::float32, s);
  out = max ? mx::scatter_max(out, {owners}, updates, {0}, s)
            : mx::scatter_add(out, {owners}, updates, {0}, s);
  if (map.reduction() != Reduction::sum) {
    mx::array counts = mx::scatter_add(mx::zeros({n}, mx::float32, s), {owners},
                                       mx::ones({entries, 1}, mx::float32, s), {0}, s);
    counts = mx::expand_dims(counts, 1, s);
    out = max ? mx::where(mx::equal(counts, mx::array(0.0f), s), mx::array(0.0f), out, s)
              : mx::divide(out, mx::maximum(counts, mx::array(1.0f), s), s);
  }
  return mx::astype(out, asked.x.dtype(), s);
}

}  // namespace lattice::routes
