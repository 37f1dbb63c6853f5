// adamw on the CPU: one pass over memory.
#include <bit>

#include "lattice/kernels/cpu/features/adamw.h"
#include "lattice/routes/adamw.h"
#include "lattice/routes/launch.h"

namespace lattice {

graph::Arrays adamw_fused(const Call& call, const Route& route) {
  const auto [b1, b2, eps] = call.get<Adamw>();
  std::string key;
  for (const double f : {b1, b2, double{eps}})
    key += std::to_string(std::bit_cast<uint64_t>(f)) + "/";
  return cpu_nodes(call, route, contiguous_inputs(call), std::move(key),
                   std::vector<graph::OutputSpec>(3, {call.inputs[0].shape(), mx::float32}),
                   [b1 = b1, b2 = b2, eps = eps](std::span<const graph::Input> in,
                                                 std::span<const graph::Output> out) {
                     const float* rate = in[4].as<float>();
                     cpu::adamw(in[0].size,
                                {in[0].as<float>(), in[1].as<float>(), in[2].as<float>(),
                                 in[3].as<float>(), out[0].as<float>(), out[1].as<float>(),
                                 out[2].as<float>(), rate[0], rate[1], rate[2], eps, b1, b2});
                   });
}

}  // namespace lattice
