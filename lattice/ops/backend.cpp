#include "lattice/ops/backend.h"

#include <mlx/memory.h>
#include <mlx/version.h>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/maps.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/probe.h"
#include "lattice/routes/products.h"

namespace lattice {
namespace mx = mlx::core;
namespace {

// docs/metal.md says it at length.
constexpr const char* kMetalStatus =
    "kernels are compiled, type-checked and executed by an emulation on the CPU and agree with the "
    "oracle there; not "
    "compiled "
    "by Apple's compiler, not run and not measured on Apple hardware; `mlx-lattice selftest "
    "--device gpu` checks them "
    "on a Mac";
// docs/cuda.md says it at length.
constexpr const char* kCudaStatus =
    "the Metal kernels behind a prelude; compiled by NVRTC, executed by an emulation on the CPU, "
    "where they agree with the oracle; not run and not measured on NVIDIA hardware; `mlx-lattice "
    "selftest --device gpu` checks them there";

}  // namespace

void release_memory() {
  release_maps();
  mx::clear_cache();
  cpu::pool_trim();
}

void set_thread_count(int n) { cpu::set_thread_count(n); }
void limit_simd(const std::string& name) { cpu::limit_simd(name); }
int thread_count() { return cpu::thread_count(); }

BackendInfo backend_info() {
  BackendInfo info{LATTICE_VERSION,
                   LATTICE_MLX_VERSION,
                   mx::version(),
                   true,
                   has_metal(),
                   has_cuda(),
                   cpu::simd_name(),
                   cpu::thread_count(),
                   name(tensor_ops()),
                   name(mlx_products()),
                   {},
                   kMetalStatus,
                   kCudaStatus,
                   graph::gpu_launches(),
                   started()};
  for (const routes::Probe& probe : routes::probes())
    info.probes.emplace_back(probe.label, probe.failure);
  return info;
}

}  // namespace lattice
