// Allocates the memory of MLX arrays through MLX's public interface.
//
// All memory of arrays comes from MLX's allocator, so that an operation of MLX may write its result
// in place into a result of ours. On a CPU the allocator keeps 32 MB for reuse unless
// mx.set_cache_limit says more. A large network then touches fresh pages in every layer; programs
// raise the limit when they start (`mlx_lattice.devices.keep_memory`, docs/performance.md).
#pragma once

#include <mlx/array.h>

namespace lattice::graph {

// Allocates the memory of a result of cpu_call; throws std::bad_alloc. A large result in plain
// memory begins on a cache line and asks for huge pages. Where MLX has a GPU, its driver decides.
void give_memory(mlx::core::array& a);

// An array with memory of its own that is not initialized; throws std::bad_alloc.
mlx::core::array empty_array(mlx::core::Shape shape, mlx::core::Dtype dtype);

}  // namespace lattice::graph
