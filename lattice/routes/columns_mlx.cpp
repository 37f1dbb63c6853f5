// sum_rows, join_columns and take_columns from plain MLX operations.
#include <mlx/ops.h>

#include "lattice/routes/columns.h"

namespace lattice {

mx::array sum_rows_with_mlx(const mx::array& x, mx::StreamOrDevice s) {
  // MLX 0.32.4 on the CPU may never end a sum over no rows.
  if (x.shape(0) == 0) return mx::zeros({x.shape(1)}, x.dtype(), s);
  return mx::astype(mx::sum(mx::astype(x, mx::float32, s), 0, false, s), x.dtype(), s);
}
mx::array sum_of_call(const Call& call) { return sum_rows_with_mlx(call.inputs[0], call.stream); }

mx::array join_columns_with_mlx(const Call& call) {
  return mx::concatenate(call.inputs, 1, call.stream);
}

mx::array take_columns_with_mlx(const Call& call) {
  const int first = call.get<Columns>().first;
  return mx::slice(call.inputs[0], {0, first},
                   {call.inputs[0].shape(0), first + static_cast<int>(call.c_out)}, call.stream);
}

}  // namespace lattice
