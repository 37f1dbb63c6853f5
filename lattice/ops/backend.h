// What this build can do on this machine.
#pragma once

#include <string>

#include "lattice/graph/metal_call.h"
#include "lattice/routes/capability.h"

namespace lattice {

// Tests execute the text of Metal kernels on the CPU through this.
using graph::MetalLaunch;
using graph::set_metal_host;

struct BackendInfo {
  std::string version;      // of this library
  std::string mlx_built;    // MLX whose headers it was compiled with
  std::string mlx_running;  // MLX that is loaded
  bool cpu;
  bool metal, cuda;  // whether MLX has such a GPU
  std::string simd;  // instruction set chosen at run time
  int threads;
  TensorOps tensor_ops;      // of Metal 4
  std::string metal_status;  // what is proven of the Metal kernels, and what not
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
