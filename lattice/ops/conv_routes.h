// Rows of the route table for conv, outer and linear, and their launchers.
#pragma once

#include <vector>

#include "lattice/ops/routes.h"

namespace lattice {

void add_conv_routes(std::vector<Route>& rows);

// (N, C) -> (C,): our kernel on the CPU, mx::sum in float32 on a GPU.
mx::array launch_sum_rows(const mx::array& x, mx::StreamOrDevice s);

}  // namespace lattice
