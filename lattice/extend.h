/// @file
/// The functions from which you can build an operation of your own. examples/cpp/custom_op.cpp
/// shows one.
///
///     cpu_call        makes a node of MLX's graph from a function on memory
///     differentiable  gives a function its own derivative rules
///     parallel_for    runs a loop on the threads of the library
#pragma once

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/differentiable.h"
#include "lattice/kernels/cpu/base/threads.h"

namespace lattice {

using cpu::parallel_for;
using cpu::parallel_range;
using graph::Arrays;
using graph::cpu_call;
using graph::differentiable;
using graph::row_contiguous;

}  // namespace lattice
