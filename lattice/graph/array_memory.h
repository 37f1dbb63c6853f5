// Memory that MLX arrays and the kernels share.
//
// MLX's CPU allocator keeps 32 MB for reuse unless mx.set_cache_limit says more, and a kept block
// serves nearly one size only. A larger network then touches fresh pages in every layer: one
// inference of MinkUNet-18 on 56,722 voxels took 1.24 times as long (AVX2). So large results of
// cpu_call have blocks of MLX's allocator that a pool of ours keeps
// (kernels/cpu/base/block_pool.h), on cache lines and with huge pages. They stay memory of MLX: an
// operation of MLX may write its result in place. A batch norm, then a sum and a ReLU of MLX
// (172,802 x 64) took 3.4 times as long in other memory.
#pragma once

#include <mlx/allocator.h>
#include <mlx/array.h>

#include <cstddef>

namespace lattice::graph {

// Gives a result of cpu_call its memory; throws std::bad_alloc. Where MLX has a GPU, and for less
// than 64 KiB, MLX's allocator does all.
void give_memory(mlx::core::array& a);

// A buffer of MLX that begins at `data`, the memory of a cpu::Buffer with `bytes` bytes; nothing is
// copied. The pointer is null where MLX cannot read this memory: then the caller must copy. Whoever
// frees the memory calls allocator::release first. MLX writes no results into such memory.
mlx::core::allocator::Buffer shared_memory(void* data, size_t bytes);

}  // namespace lattice::graph
