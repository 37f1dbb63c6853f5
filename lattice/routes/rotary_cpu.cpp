// Rotary position encoding on the CPU.
#include "lattice/kernels/cpu/features/rotary.h"

#include <bit>

#include "lattice/routes/launch.h"
#include "lattice/routes/rotary.h"

namespace lattice {

Call rotary_call(const mx::array& x, const Rotary& rotary, mx::StreamOrDevice s) {
  const int64_t channels = int64_t{x.shape(1)} * x.shape(2);
  return {.operation = Operation::rotary,
          .inputs = {x},
          .c_in = channels,
          .c_out = channels,
          .dtype = x.dtype(),
          .payload = rotary,
          .stream = s};
}

mx::array rotary_rows(const Call& call, const Route& route) {
  const Rotary& r = call.get<Rotary>();
  graph::Arrays inputs = contiguous_inputs(call);
  inputs.push_back(graph::row_contiguous(r.positions, call.stream));
  std::string key = std::to_string(std::bit_cast<uint64_t>(r.base));
  key.append(r.inverse ? "/inverse" : "/forward");
  return cpu_node(call, route, std::move(inputs), std::move(key),
                  {call.inputs[0].shape(), call.dtype},
                  [base = r.base, inverse = r.inverse](std::span<const graph::Input> in,
                                                       const graph::Output& out) {
                    const mx::Shape& shape = in[0].shape;
                    cpu::rotary({float_type_of(in[0].dtype), shape[0], shape[1], shape[2],
                                 in[1].shape[1], base, inverse},
                                in[0].data, in[1].as<float>(), out.data);
                  });
}

}  // namespace lattice
