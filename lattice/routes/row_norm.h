// Normalization of each row over its channels (kernels/cpu/features/row_norm.h), and its gradient.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array row_norm_fused(const Call& call, const Route& route);
mx::array row_norm_with_mlx(const Call& call);
// Cotangents of x, weight and bias.
graph::Arrays row_norm_vjp_fused(const Call& call, const Route& route);
graph::Arrays row_norm_vjp_with_mlx(const Call& call, const Route& route);

// In MLX operations, differentiable as they are. Inputs: x, weight, bias.
mx::array row_norm_formula(const RowScale& norm, const graph::Arrays& in, mx::StreamOrDevice s);

}  // namespace lattice
