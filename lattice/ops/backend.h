/// @file
/// Reports what this build can do on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lattice/api.h"

namespace lattice {

/// The result of backend_info().
struct BackendInfo {
  std::string version;      ///< version of this library
  std::string mlx_built;    ///< MLX whose headers it was compiled with
  std::string mlx_running;  ///< MLX that is loaded
  bool cpu;                 ///< always
  bool metal;               ///< whether MLX has a GPU with Metal
  bool cuda;                ///< whether MLX has a GPU with CUDA
  std::string simd;         ///< instruction set chosen at run time
  int threads;              ///< threads that one operation may use
  std::string tensor_ops;   ///< those of Metal 4: "unavailable", "gpu", "neural_accelerator"
  std::string products;     ///< what MLX multiplies float32 with on the GPU: "float32" or "tf32"
  /// Kernels that were tried on this GPU, each with the reason why it is not used; the reason is
  /// empty if the kernel is used.
  std::vector<std::pair<std::string, std::string>> probes;
  std::string metal_status;  ///< what is known to work of the Metal kernels, and what is not
  std::string cuda_status;   ///< the same for the CUDA kernels
  int64_t launches = 0;      ///< kernels of a GPU that were launched in this process
  int64_t starts = 0;        ///< asynchronous evaluations that the library started
};
/// Looks at the machine and at MLX.
LATTICE_API BackendInfo backend_info();

/// Returns the memory that MLX and the kernels keep for reuse to the system, and forgets the
/// coordinates and relations of dense maps (from_map). The memory of arrays is not touched.
LATTICE_API void release_memory();

/// Threads that one operation may use; n >= 1, else std::invalid_argument. Results do not depend on
/// it.
LATTICE_API void set_thread_count(int n);
/// Threads that one operation may use.
LATTICE_API int thread_count();
/// Runs kernels on the named instruction set from now on, as LATTICE_SIMD does; an empty name lifts
/// the limit. Throws std::invalid_argument for names that the machine or the build lacks.
LATTICE_API void limit_simd(const std::string& name);

}  // namespace lattice
