// Memory of the results of cpu_call.
//
// MLX's CPU allocator keeps 32 MB for reuse unless mx.set_cache_limit says more. A larger network
// then touches fresh pages in every layer. One inference of MinkUNet-18 on 56,722 voxels took 1.24
// times as long (AVX2). Its arrays also begin 8 bytes behind a cache line. So large
// results come from the pool of the kernels (kernels/cpu/base/memory.h), on cache lines and with
// huge pages. MLX reads them as its own: the size stands before the data, as in its allocator.
#pragma once

#include <mlx/allocator.h>

#include <cstddef>

namespace lattice::graph {

// Throws std::bad_alloc. Where MLX has a GPU, and for less than 64 KiB, the memory is MLX's own.
mlx::core::allocator::Data output_memory(size_t bytes);

}  // namespace lattice::graph
