// What the GPU of this machine can do.
#pragma once

#include <string>

namespace lattice {

// Matrix units that kernels may use on the GPU.
enum class TensorOps {
  unavailable,         // no Metal
  gpu,                 // 8x8 simdgroup matrices
  neural_accelerator,  // tensor operations of Metal 4: macOS 26.2 or later on GPU generation 17 or
                       // later
};
TensorOps tensor_ops();
const char* name(TensorOps tier);

// GPU generation in an architecture name: "applegpu_g16s" -> 16; 0 when there is none.
int gpu_generation(const std::string& architecture);

}  // namespace lattice
