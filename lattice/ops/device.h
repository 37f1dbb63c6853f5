// The device on which operations of the default stream run.
#pragma once

#include <mlx/array.h>

#include <vector>

#include "lattice/api.h"

namespace lattice {

// Whether the default stream is one of a GPU.
LATTICE_API bool default_is_gpu();

// Running mean and variance of batch norm after a step on a GPU, from the old ones, mean and var of
// the rows: (1 - momentum) old + momentum new, the variance times `wider`.
LATTICE_API std::vector<mlx::core::array> running_statistics(
    const std::vector<mlx::core::array>& in, double momentum, double wider);

}  // namespace lattice
