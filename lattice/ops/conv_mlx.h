// conv and outer from plain MLX operations: gather, matmul, scatter-add, offset by offset, in
// float32. The route for devices that have no kernel of ours, and the yardstick for those that
// have.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

mx::array conv_with_mlx(const Call& call);
mx::array outer_with_mlx(const Call& call);
mx::array linear_with_mlx(const Call& call);

}  // namespace lattice
