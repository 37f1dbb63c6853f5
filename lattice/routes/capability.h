// Finds out what the GPU of this machine can do.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <string>
#include <string_view>
#include <vector>

#include "lattice/api.h"
#include "lattice/graph/gpu_call.h"

namespace lattice {

using graph::TensorOps;
TensorOps tensor_ops();
LATTICE_API const char* name(TensorOps tier);
// The tier of a GPU by its architecture name; has_api: macOS is 26.2 or later.
TensorOps tier_of(const std::string& architecture, bool has_api);

// Whether kernels of Metal run.
bool has_metal();
// Whether MLX has a CUDA device.
bool has_cuda();

// Whether operations on s take rows of a GPU.
LATTICE_API bool on_gpu(mlx::core::StreamOrDevice s);

// mx::async_eval, counted; and the count.
LATTICE_API void start(const std::vector<mlx::core::array>& arrays);
int64_t started();
// Starts to compute the arrays if s is a stream of a GPU, and returns whether it did. Arrays
// without values yet, inside compile or vmap, are left alone.
LATTICE_API bool start_on_gpu(const std::vector<mlx::core::array>& arrays,
                              mlx::core::StreamOrDevice s = {});

// Throws where coordinates of 64 bits meet a GPU.
void check_coords_on_device(std::string_view operation, const mlx::core::array& coords,
                            mlx::core::StreamOrDevice s);

// GPU generation in an architecture name: "applegpu_g16s" -> 16; 0 when there is none.
int gpu_generation(const std::string& architecture);

}  // namespace lattice
