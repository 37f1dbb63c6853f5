// integer_conv on the CPU.
#include "lattice/kernels/cpu/features/int_conv.h"
#include "lattice/routes/int_conv.h"
#include "lattice/routes/launch.h"

namespace lattice::routes {
namespace {

// A node that runs kernel(lists, arguments); inputs are x, what is behind it, the residual.
template <typename Kernel>
mx::array node(const IntConvAsked& asked, const Route& route, Kernel kernel) {
  graph::Arrays inputs = {asked.x};
  const bool more = asked.more.has_value(), residual = asked.residual.has_value();
  if (more) inputs.push_back(*asked.more);
  if (residual) inputs.push_back(*asked.residual);
  const std::string key = address(asked.relation.get()) + "/" +
                          address(asked.kernel.packed().get()) + "/" + std::to_string(more) +
                          std::to_string(residual);
  const IntegerKernel& k = asked.kernel;
  const graph::OutputSpec spec{
      {static_cast<int>(asked.relation->n_out()), static_cast<int>(k.out_channels())},
      stored_dtype(k.parts().output)};
  return cpu_node(route, asked.stream, contiguous(inputs, asked.stream), key, spec,
                  [kernel, k, r = asked.relation, more, residual](std::span<const graph::Input> in,
                                                                  const graph::Output& out) {
                    cpu::IntConvArgs args;
                    args.weight = k.packed().get();
                    args.x = {in[0].data, in[0].shape[1]};
                    if (more) args.more = {in[1].data, in[1].shape[1]};
                    if (residual) {
                      args.residual = in[more ? 2 : 1].data;
                      args.residual_type = int_type(*k.parts().residual);
                    }
                    args.out = int_type(k.parts().output);
                    args.relu = k.parts().relu;
                    if (k.parts().table) args.table = k.parts().table->data<uint8_t>();
                    args.y = out.data;
                    args.one_edge_each = r->has_one_edge_per_output();
                    kernel(*r, k, args);
                  });
}

}  // namespace

mx::array int_conv_tiles(const IntConvAsked& asked, const Route& route, cpu::IntDot dot) {
  return node(asked, route, [dot](const Relation& r, const IntegerKernel&, cpu::IntConvArgs args) {
    args.dot = dot;
    cpu::int_conv(r.lists(), r.tiles(), args);
  });
}

mx::array int_conv_reference(const IntConvAsked& asked, const Route& route) {
  return node(asked, route,
              [](const Relation& r, const IntegerKernel& k, const cpu::IntConvArgs& args) {
                cpu::reference_int_conv(r.lists(), layer_of(k.parts()), args);
              });
}

}  // namespace lattice::routes
