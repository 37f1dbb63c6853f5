// What the GPU of this machine can do.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <optional>
#include <string>
#include <string_view>

namespace lattice {

// The tensor API of Metal 4. 8 x 8 simdgroup matrices are there on every tier.
enum class TensorOps {
  unavailable,         // no Metal, macOS before 26.2, or a GPU before generation 13
  gpu,                 // the API, without units of its own
  neural_accelerator,  // generation 17 or later, 18 where the name of the GPU ends in p
};
TensorOps tensor_ops();
const char* name(TensorOps tier);
// The tier of a GPU by its architecture name; has_api: macOS is 26.2 or later.
TensorOps tier_of(const std::string& architecture, bool has_api);
// Tests of rows that ask for a tier take this one in place of the machine's; none: the machine's.
void force_tensor_ops(std::optional<TensorOps> tier);

// Whether kernels of Metal run: MLX has Metal, or there is a Metal host.
bool has_metal();
// Whether MLX has a CUDA device.
bool has_cuda();

// Whether operations on s take rows of a GPU. With a Metal host every stream counts as one.
bool on_gpu(mlx::core::StreamOrDevice s);

// Throws where coordinates of 64 bits meet a GPU.
void check_coords_on_device(std::string_view operation, const mlx::core::array& coords,
                            mlx::core::StreamOrDevice s);

// GPU generation in an architecture name: "applegpu_g16s" -> 16; 0 when there is none.
int gpu_generation(const std::string& architecture);

}  // namespace lattice
