#include "lattice/ops/columns.h"

#include <mlx/ops.h>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/differentiable.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/columns.h"

namespace lattice {
namespace {

mx::array join_node(const graph::Arrays& parts, int columns, mx::StreamOrDevice s) {
  graph::Arrays inputs;
  for (const mx::array& part : parts) inputs.push_back(graph::row_contiguous(part, s));
  return graph::cpu_call(
      "join_columns", "", std::move(inputs), {{{parts[0].shape(0), columns}, parts[0].dtype()}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const int64_t item = static_cast<int64_t>(mx::size_of(out[0].dtype)),
                      stride = out[0].shape[1] * item;
        std::vector<cpu::ColumnBlock> blocks;
        char* to = out[0].as<char>();
        for (const graph::Input& part : in) {
          const int64_t bytes = part.shape[1] * item;
          blocks.push_back({part.data, bytes, to, stride, bytes});
          to += bytes;
        }
        cpu::copy_columns(out[0].shape[0], blocks);
      },
      s)[0];
}

mx::array take_node(const mx::array& x, int first, int count, mx::StreamOrDevice s) {
  return graph::cpu_call(
      "take_columns", std::to_string(first), {graph::row_contiguous(x, s)},
      {{{x.shape(0), count}, x.dtype()}},
      [first](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const int64_t item = static_cast<int64_t>(mx::size_of(out[0].dtype)),
                      bytes = out[0].shape[1] * item;
        const cpu::ColumnBlock block{in[0].as<char>() + first * item, in[0].shape[1] * item,
                                     out[0].data, bytes, bytes};
        cpu::copy_columns(out[0].shape[0], {&block, 1});
      },
      s)[0];
}

}  // namespace

mx::array join_columns(const std::vector<mx::array>& parts, mx::StreamOrDevice s) {
  int columns = 0;
  for (const mx::array& part : parts) columns += part.shape(1);
  // MLX's own concatenation copies element by element on the CPU.
  if (graph::on_gpu(s)) return mx::concatenate(parts, 1, s);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {join_node(in, columns, s)};
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
  if (graph::on_gpu(s)) return mx::slice(x, {0, first}, {x.shape(0), first + count}, s);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {take_node(in[0], first, count, s)};
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
