// Defines for CUDA the parts of the Metal Shading Language that the files of kernels/metal use. It
// comes after MLX's own header and before the text of a topic.
//
// A simdgroup is a warp, and a threadgroup is a block. CUDA's types have no address spaces.
#pragma once

#include "lattice/kernels/cuda/place.cuh"
#include "lattice/kernels/cuda/threads.cuh"

using namespace metal;
