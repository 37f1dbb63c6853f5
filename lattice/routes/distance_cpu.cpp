// distance and its gradient on the CPU.
#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/features/distance.h"
#include "lattice/kernels/cpu/features/distance_gradient.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

template <typename Kernel>
mx::array node(const Call& call, const Route& route, Kernel kernel) {
  const int n = call.inputs[0].shape(0), m = call.inputs[1].shape(0);
  return cpu_node(call, route, contiguous_inputs(call), name(call.get<Pairs>().metric),
                  {{n, m}, mx::float32},
                  [kernel, metric = call.get<Pairs>().metric](std::span<const graph::Input> in,
                                                              const graph::Output& out) {
                    kernel(in[0].template as<float>(), in[0].shape[0], in[1].template as<float>(),
                           in[1].shape[0], in[0].shape[1], metric, out.template as<float>());
                  });
}

}  // namespace

mx::array distance_tiles(const Call& call, const Route& route) {
  return node(call, route,
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance metric,
                 float* d) { cpu::distance_matrix(a, n, b, m, c, metric, d); });
}

mx::array distance_reference(const Call& call, const Route& route) {
  return node(call, route,
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance metric,
                 float* d) {
                for (int64_t i = 0; i < n; ++i)
                  for (int64_t j = 0; j < m; ++j)
                    d[i * m + j] =
                        static_cast<float>(exact_distance(a + i * c, b + j * c, c, metric));
              });
}

Call distance_call(const mx::array& a, const mx::array& b, Distance metric, mx::StreamOrDevice s) {
  Call call;
  call.operation = Operation::distance;
  call.inputs = {a, b};
  call.payload = Pairs{metric};
  call.c_in = a.shape(1);
  call.c_out = 1;
  call.stream = s;
  return call;
}

Call distance_vjp_call(const mx::array& a, const mx::array& b, const mx::array& w,
                       mx::StreamOrDevice s) {
  Call call = distance_call(a, b, Distance::squared, s);
  call.operation = Operation::distance_vjp;
  call.inputs.push_back(w);
  return call;
}

graph::Arrays distance_vjp_rows(const Call& call, const Route& route) {
  return cpu_nodes(call, route, contiguous_inputs(call), "",
                   {{call.inputs[0].shape(), mx::float32}, {call.inputs[1].shape(), mx::float32}},
                   [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
                     cpu::distance_gradient(
                         {in[2].as<float>(), in[0].as<float>(), in[1].as<float>(), in[0].shape[0],
                          in[1].shape[0], in[0].shape[1]},
                         out[0].as<float>(), out[1].as<float>());
                   });
}

}  // namespace lattice
