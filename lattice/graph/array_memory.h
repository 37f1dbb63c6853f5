// Memory that MLX arrays and the kernels share.
//
// MLX's CPU allocator keeps 32 MB for reuse unless mx.set_cache_limit says more. A larger network
// then touches fresh pages in every layer. One inference of MinkUNet-18 on 56,722 voxels took 1.24
// times as long (AVX2). Its arrays also begin 8 bytes behind a cache line. So large
// results come from the pool of the kernels (kernels/cpu/base/memory.h), on cache lines and with
// huge pages. MLX reads them as its own: the size stands before the data, as in its allocator.
//
// The price: MLX writes a result in place only into memory of its own allocator. So an operation of
// MLX on a result takes new memory. A batch norm, then a sum and a ReLU of MLX (172,802 x 64) have
// 0.8 of the speed of memory from MLX. The same in one pass, batch_norm_act, is 3 times as fast.
#pragma once

#include <mlx/allocator.h>

#include <cstddef>

namespace lattice::graph {

// Memory of a result of cpu_call; throws std::bad_alloc. Where MLX has a GPU, and for less than
// 64 KiB, the memory is MLX's own.
mlx::core::allocator::Data output_memory(size_t bytes);

// A buffer of MLX that begins at `data`, the memory of a cpu::Buffer with `bytes` bytes; nothing is
// copied. The pointer is null where MLX cannot read this memory: then the caller must copy. Whoever
// frees the memory calls allocator::release first.
mlx::core::allocator::Buffer shared_memory(void* data, size_t bytes);

}  // namespace lattice::graph
