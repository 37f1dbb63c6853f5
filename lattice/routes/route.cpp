#include "lattice/routes/route.h"

#include "lattice/routes/capability.h"

namespace lattice {

const char* name(Rejection::Step step) {
  static constexpr const char* kNames[] = {"device",  "family",          "relation",
                                           "storage", "shape and dtype", "capability"};
  return kNames[static_cast<int>(step)];
}

Rejection needs_gpu_kernels(const Call&) {
  if (graph::gpu_backend() == graph::GpuBackend::none)
    return {Rejection::Step::capability, "MLX has no Metal and no CUDA here"};
  return {};
}

Rejection Route::refusal(const Call& call) const {
  const Rejection why = check(call);
  if (!why.fits()) return why;
  const graph::GpuBackend backend = graph::gpu_backend();
  if (code == Code::metal && backend != graph::GpuBackend::metal)
    return {Rejection::Step::capability, "MLX has no Metal here"};
  if (code == Code::cuda && backend != graph::GpuBackend::cuda)
    return {Rejection::Step::capability, "MLX has no CUDA here"};
  return {};
}

}  // namespace lattice
