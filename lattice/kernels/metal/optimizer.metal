// One step of AdamW, and the running statistics of batch norm; one thread per value.
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/portable/optimizer_sizes.h"

namespace lattice {
using namespace metal;

// Parameter, gradient and moments.
template <typename P, typename G, typename M, typename V, typename R>
struct AdamwArrays {
  P p;
  G g;
  M m;
  V v;
  R rates;  // decay, rate, correction, whether the step counts, factor of the gradient
};
template <typename P, typename G, typename M, typename V, typename R>
METAL_FUNC AdamwArrays<P, G, M, V, R> adamw_arrays(P p, G g, M m, V v, R rates) {
  return {p, g, m, v, rates};
}

template <typename Arrays>
METAL_FUNC void adamw(Arrays in, device float* p, device float* m, device float* v,
                      AdamwSizes sizes, uint i) {
  const float g = in.g[i] * in.rates[4];
  const float m2 = sizes.b1 * in.m[i] + sizes.r1 * g, v2 = sizes.b2 * in.v[i] + sizes.r2 * (g * g);
  const float below = in.rates[2] * sqrt(v2) + sizes.eps;
  const float p2 = in.rates[0] * in.p[i] - in.rates[1] * m2 / below;
  const bool counts = in.rates[3] != 0.0f;
  p[i] = counts ? p2 : in.p[i];
  m[i] = counts ? m2 : in.m[i];
  v[i] = counts ? v2 : in.v[i];
}

// factors: 1 - momentum, momentum, n / (n - 1).
template <typename A, typename B, typename M, typename V>
METAL_FUNC void running_statistics(A old_mean, B old_var, M mean, V var, device float* new_mean,
                                   device float* new_var, RunningSizes sizes, uint i) {
  new_mean[i] = sizes.keep * float(old_mean[i]) + sizes.take * float(mean[i]);
  new_var[i] = sizes.keep * float(old_var[i]) + sizes.take * float(var[i]) * sizes.wider;
}

}  // namespace lattice
