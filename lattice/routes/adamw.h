// Launchers of adamw: {parameter, m, v} after one step.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

graph::Arrays adamw_fused(const Call& call, const Route& route);
graph::Arrays adamw_with_mlx(const Call& call, const Route& route);

}  // namespace lattice
