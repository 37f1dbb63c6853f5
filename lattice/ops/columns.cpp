#include "lattice/ops/columns.h"

#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/column_copies.h"
#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

using graph::Arrays;
using Inputs = std::span<const graph::Input>;
using Outputs = std::span<const graph::Output>;

// Whole rows are copied; MLX's own concatenation copies value by value on the CPU.
mx::array launch_join(const Arrays& parts, int columns, mx::StreamOrDevice s) {
  if (on_gpu(s)) return mx::concatenate(parts, 1, s);
  const auto run = [](Inputs in, Outputs out) {
    const auto item = static_cast<int64_t>(mx::size_of(out[0].dtype));
    const int64_t stride = out[0].shape[1] * item;
    std::vector<cpu::ColumnBlock> blocks;
    char* to = out[0].as<char>();
    for (const graph::Input& part : in) {
      const int64_t bytes = part.shape[1] * item;
      blocks.push_back({part.data, bytes, to, stride, bytes});
      to += bytes;
    }
    cpu::copy_columns(out[0].shape[0], blocks);
  };
  return graph::cpu_call("join_columns", "", routes::contiguous(parts, s),
                         {{{parts[0].shape(0), columns}, parts[0].dtype()}}, run, s)[0];
}

mx::array launch_take(const mx::array& x, int first, int count, mx::StreamOrDevice s) {
  const int rows = x.shape(0);
  if (on_gpu(s)) return mx::slice(x, {0, first}, {rows, first + count}, s);
  const auto run = [first](Inputs in, Outputs out) {
    const auto item = static_cast<int64_t>(mx::size_of(out[0].dtype));
    const int64_t bytes = out[0].shape[1] * item;
    const cpu::ColumnBlock block{in[0].as<char>() + first * item, in[0].shape[1] * item,
                                 out[0].data, bytes, bytes};
    cpu::copy_columns(out[0].shape[0], {&block, 1});
  };
  return graph::cpu_call("take_columns", std::to_string(first), routes::contiguous({x}, s),
                         {{{rows, count}, x.dtype()}}, run, s)[0];
}

mx::array launch_sum(const mx::array& x, mx::StreamOrDevice s) {
  if (on_gpu(s)) return sum_rows_with_mlx(x, s);
  const auto run = [](Inputs in, Outputs out) {
    cpu::sum_rows(routes::float_type_of(in[0].dtype), in[0].data, in[0].shape[0], in[0].shape[1],
                  out[0].data);
  };
  return graph::cpu_call("sum_rows", "", routes::contiguous({x}, s), {{{x.shape(1)}, x.dtype()}},
                         run, s)[0];
}

}  // namespace

mx::array join_columns(const std::vector<mx::array>& parts, mx::StreamOrDevice s) {
  int columns = 0;
  for (const mx::array& part : parts) columns += part.shape(1);
  const auto forward = [=](const Arrays& in) -> Arrays { return {launch_join(in, columns, s)}; };
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays&) -> Arrays {
    Arrays grads;
    int first = 0;
    for (const mx::array& part : in) {
      grads.push_back(take_columns(ct[0], first, part.shape(1), s));
      first += part.shape(1);
    }
    return grads;
  };
  const auto jvp = [=](const Arrays&, const Arrays& t) -> Arrays { return {join_columns(t, s)}; };
  return graph::differentiable(parts, forward, vjp, jvp)[0];
}

mx::array take_columns(const mx::array& x, int first, int count, mx::StreamOrDevice s) {
  const auto forward = [=](const Arrays& in) -> Arrays {
    return {launch_take(in[0], first, count, s)};
  };
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays&) -> Arrays {
    const int rows = in[0].shape(0), behind = in[0].shape(1) - first - count;
    return {join_columns({mx::zeros({rows, first}, ct[0].dtype(), s), ct[0],
                          mx::zeros({rows, behind}, ct[0].dtype(), s)},
                         s)};
  };
  const auto jvp = [=](const Arrays&, const Arrays& t) -> Arrays {
    return {take_columns(t[0], first, count, s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

mx::array sum_rows_with_mlx(const mx::array& x, mx::StreamOrDevice s) {
  return mx::astype(sum_axis(mx::astype(x, mx::float32, s), 0, false, s), x.dtype(), s);
}

mx::array sum_rows(const mx::array& x, mx::StreamOrDevice s) {
  const auto forward = [s](const Arrays& in) -> Arrays { return {launch_sum(in[0], s)}; };
  const auto vjp = [s](const Arrays& in, const Arrays& ct, const Arrays&) -> Arrays {
    return {mx::broadcast_to(ct[0], in[0].shape(), s)};
  };
  const auto jvp = [s](const Arrays&, const Arrays& t) -> Arrays { return {sum_rows(t[0], s)}; };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

}  // namespace lattice
