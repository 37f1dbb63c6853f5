// sum_rows, join_columns and take_columns on the CPU.
#include "lattice/kernels/cpu/features/column_copies.h"

#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/routes/columns.h"
#include "lattice/routes/launch.h"

namespace lattice {

mx::array sum_rows_chunks(const Call& call, const Route& route) {
  return cpu_node(call, route, contiguous_inputs(call), "",
                  {{static_cast<int>(call.c_out)}, call.dtype},
                  [](std::span<const graph::Input> in, const graph::Output& out) {
                    cpu::sum_rows(float_type_of(in[0].dtype), in[0].data, in[0].shape[0],
                                  in[0].shape[1], out.data);
                  });
}

// MLX's own concatenation copies value by value on the CPU.
mx::array join_columns_copies(const Call& call, const Route& route) {
  return cpu_node(call, route, contiguous_inputs(call), "", output_rows(call),
                  [](std::span<const graph::Input> in, const graph::Output& out) {
                    const auto item = static_cast<int64_t>(mx::size_of(out.dtype));
                    const int64_t stride = out.shape[1] * item;
                    std::vector<cpu::ColumnBlock> blocks;
                    char* to = out.as<char>();
                    for (const graph::Input& part : in) {
                      const int64_t bytes = part.shape[1] * item;
                      blocks.push_back({part.data, bytes, to, stride, bytes});
                      to += bytes;
                    }
                    cpu::copy_columns(out.shape[0], blocks);
                  });
}

mx::array take_columns_copies(const Call& call, const Route& route) {
  const int first = call.get<Columns>().first;
  return cpu_node(call, route, contiguous_inputs(call), std::to_string(first), output_rows(call),
                  [first](std::span<const graph::Input> in, const graph::Output& out) {
                    const auto item = static_cast<int64_t>(mx::size_of(out.dtype));
                    const int64_t bytes = out.shape[1] * item;
                    const cpu::ColumnBlock block{in[0].as<char>() + first * item,
                                                 in[0].shape[1] * item, out.data, bytes, bytes};
                    cpu::copy_columns(out.shape[0], {&block, 1});
                  });
}

}  // namespace lattice
