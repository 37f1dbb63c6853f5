// GELU and its slope: x Phi(x), Phi(x) + x phi(x).
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array gelu_fused(const Call& call, const Route& route);
mx::array gelu_with_mlx(const Call& call);

// In MLX operations, differentiable as they are.
mx::array gelu_formula(const mx::array& x, bool slope, mx::StreamOrDevice s);

}  // namespace lattice
