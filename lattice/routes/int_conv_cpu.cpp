// integer_conv on the CPU.
#include "lattice/kernels/cpu/features/int_conv.h"
#include "lattice/routes/int_conv.h"
#include "lattice/routes/launch.h"

namespace lattice::routes {
namespace {

cpu::IntType int_type(mx::Dtype dtype) {
  return dtype == mx::uint8   ? cpu::IntType::u8
         : dtype == mx::int16 ? cpu::IntType::i16
                              : cpu::IntType::f32;
}

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
      k.parts().output};
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
                    args.y = out.data;
                    args.one_edge_each = r->has_one_edge_per_output();
                    kernel(*r, k, args);
                  });
}

}  // namespace

mx::array int_conv_tiles(const IntConvAsked& asked, const Route& route) {
  return node(asked, route,
              [](const Relation& r, const IntegerKernel&, const cpu::IntConvArgs& args) {
                cpu::int_conv(r.lists(), r.tiles(), args);
              });
}

mx::array int_conv_reference(const IntConvAsked& asked, const Route& route) {
  return node(asked, route,
              [](const Relation& r, const IntegerKernel& k, const cpu::IntConvArgs& args) {
                const IntegerParts& parts = k.parts();
                cpu::IntLayer layer{.in = int_type(parts.input),
                                    .n_k = k.n_k(),
                                    .c_in = k.in_channels(),
                                    .c_out = k.out_channels(),
                                    .w = parts.weight.data<int8_t>(),
                                    .bias = parts.bias.data<int32_t>(),
                                    .scale = parts.scale.data<float>()};
                if (parts.factor) layer.factor = parts.factor->data<int32_t>();
                cpu::reference_int_conv(r.lists(), layer, args);
              });
}

std::string int_conv_note(const IntConvAsked&) {
  return std::string("instruction set ") + cpu::int_conv_target() +
         "; every instruction set gives the same bits";
}

}  // namespace lattice::routes
