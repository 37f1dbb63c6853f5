// What the GPU of this machine can do.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <string>
#include <string_view>

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

// Whether operations on s take rows of a GPU. With a Metal host every stream counts as one.
bool on_gpu(mlx::core::StreamOrDevice s);

// Throws where coordinates of 64 bits meet a GPU.
void check_coords_on_device(std::string_view operation, const mlx::core::array& coords,
                            mlx::core::StreamOrDevice s);

// GPU generation in an architecture name: "applegpu_g16s" -> 16; 0 when there is none.
int gpu_generation(const std::string& architecture);

}  // namespace lattice
