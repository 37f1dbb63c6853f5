// What the texts of kernels/metal need of the Metal Shading Language, for CUDA. It comes after
// MLX's own header and before the text of a topic.
//
// A simdgroup is a warp, and a threadgroup is a block. CUDA's types have no address spaces.
#pragma once

#include "lattice/kernels/cuda/place.cuh"
#include "lattice/kernels/cuda/threads.cuh"

using namespace metal;
