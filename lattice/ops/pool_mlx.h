// pool, segments and gather from plain MLX operations, in float32. The route for devices that have
// no kernel of ours, and the yardstick for those that have.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

mx::array pool_with_mlx(const Call& call);
mx::array segments_with_mlx(const Call& call);
mx::array gather_with_mlx(const Call& call);

}  // namespace lattice
