// Rows of CUDA from rows of Metal.
#pragma once

#include <initializer_list>
#include <vector>

#include "lattice/routes/route.h"

namespace lattice {

// Every row of Metal has a twin for CUDA, whose kernels are the same text: behind a run of rows
// "metal.x" stand their twins "cuda.x". Tensor operations of Metal have none.
std::vector<Route> with_cuda(std::initializer_list<Route> rows);

}  // namespace lattice
