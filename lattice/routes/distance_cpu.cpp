// distance on the CPU.
#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/features/distance.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/launch.h"

namespace lattice::routes {
namespace {

template <typename Kernel>
mx::array node(const DistanceAsked& asked, const Route& route, Kernel kernel) {
  return cpu_node(
      route, asked.stream, contiguous({asked.a, asked.b}, asked.stream), name(asked.metric),
      {{asked.a.shape(0), asked.b.shape(0)}, mx::float32},
      [kernel, metric = asked.metric](std::span<const graph::Input> in, const graph::Output& out) {
        kernel(in[0].template as<float>(), in[0].shape[0], in[1].template as<float>(),
               in[1].shape[0], in[0].shape[1], metric, out.template as<float>());
      });
}

}  // namespace

mx::array distance_tiles(const DistanceAsked& asked, const Route& route) {
  return node(asked, route,
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance metric,
                 float* d) { cpu::distance_matrix(a, n, b, m, c, metric, d); });
}

mx::array distance_reference(const DistanceAsked& asked, const Route& route) {
  return node(asked, route,
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c, Distance metric,
                 float* d) {
                for (int64_t i = 0; i < n; ++i)
                  for (int64_t j = 0; j < m; ++j)
                    d[i * m + j] =
                        static_cast<float>(exact_distance(a + i * c, b + j * c, c, metric));
              });
}

}  // namespace lattice::routes
