/// @file
/// What this build can do on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lattice/api.h"

namespace lattice {

/// What backend_info() found.
struct BackendInfo {
  std::string version;      ///< of this library
  std::string mlx_built;    ///< MLX whose headers it was compiled with
  std::string mlx_running;  ///< MLX that is loaded
  bool cpu;                 ///< always
  bool metal;               ///< whether MLX has a GPU with Metal
  bool cuda;                ///< whether MLX has a GPU with CUDA
  std::string simd;         ///< instruction set chosen at run time
  int threads;              ///< that one operation may use
  std::string tensor_ops;   ///< of Metal 4: "unavailable", "gpu" or "neural_accelerator"
  std::string products;     ///< what MLX multiplies float32 with on the GPU: "float32" or "tf32"
  /// Kernels that were tried on this GPU, and why they are not used; an empty text: they are.
  std::vector<std::pair<std::string, std::string>> probes;
  std::string metal_status;  ///< what is proven of the Metal kernels, and what not
  std::string cuda_status;   ///< the same of the CUDA kernels
  int64_t launches = 0;      ///< kernels of a GPU that were launched in this process
  int64_t starts = 0;        ///< asynchronous evaluations that the library started
};
/// Looks at the machine and at MLX.
LATTICE_API BackendInfo backend_info();

/// Gives memory back to the system that MLX and the kernels keep for reuse. What arrays hold stays.
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
