#include "lattice/ops/backend.h"

#include <mlx/backend/metal/metal.h>
#include <mlx/version.h>

#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"

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

}  // namespace

void set_thread_count(int n) { cpu::set_thread_count(n); }
void limit_simd(const std::string& name) { cpu::limit_simd(name); }
int thread_count() { return cpu::thread_count(); }

BackendInfo backend_info() {
  return {LATTICE_VERSION,
          LATTICE_MLX_VERSION,
          mx::version(),
          true,
          mx::metal::is_available(),
          has_cuda(),
          cpu::simd_name(),
          cpu::thread_count(),
          tensor_ops(),
          kMetalStatus};
}

}  // namespace lattice
