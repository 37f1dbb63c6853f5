// What this build can do on this machine.
#pragma once

#include <cstdint>
#include <string>

#include "lattice/graph/gpu_call.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/probe.h"
#include "lattice/routes/products.h"

namespace lattice {

// Tests execute the text of GPU kernels on the CPU through this.
using graph::GpuBackend;
using graph::GpuLaunch;
using graph::set_gpu_host;

struct BackendInfo {
  std::string version;      // of this library
  std::string mlx_built;    // MLX whose headers it was compiled with
  std::string mlx_running;  // MLX that is loaded
  bool cpu;
  bool metal, cuda;  // whether MLX has such a GPU
  std::string simd;  // instruction set chosen at run time
  int threads;
  int64_t kept_weights;  // bytes of packed weights that are kept between calls
  TensorOps tensor_ops;  // of Metal 4
  Products products;     // of float32 by MLX on the GPU
  std::vector<Probe> probes;
  std::string metal_status;  // what is proven of the Metal kernels, and what not
  std::string cuda_status;   // the same of the CUDA kernels
};
BackendInfo backend_info();

// Threads that one operation may use; n >= 1, else std::invalid_argument. Results do not depend on
// it.
void set_thread_count(int n);
int thread_count();
// Runs kernels on the named instruction set from now on, as LATTICE_SIMD does; an empty name lifts
// the limit. Throws std::invalid_argument for names that the machine or the build lacks.
void limit_simd(const std::string& name);

}  // namespace lattice
