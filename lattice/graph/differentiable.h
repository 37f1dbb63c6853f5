/// @file
/// Gives a forward function its own derivative rules. All derivatives of the library are made this
/// way.
///
///     y = forward(x)     dx = vjp(x, dy, y)     dy = jvp(x, dx)
///
/// The rules are built from differentiable operations again, so derivatives of any order exist. MLX
/// does not look into forward: its inputs pass through stop_gradient there.
#pragma once

#include <mlx/array.h>

#include <functional>
#include <vector>

#include "lattice/api.h"

namespace lattice::graph {

/// Inputs, outputs, tangents and cotangents.
using Arrays = std::vector<mlx::core::array>;

/// The function itself.
using Forward = std::function<Arrays(const Arrays& inputs)>;
/// One cotangent per input, of its shape and dtype. Unused ones are never evaluated.
using Vjp =
    std::function<Arrays(const Arrays& inputs, const Arrays& cotangents, const Arrays& outputs)>;
/// One tangent per output; tangents holds one array per input, zeros for an input that does not
/// vary.
using Jvp = std::function<Arrays(const Arrays& inputs, const Arrays& tangents)>;

/// forward(inputs), with the derivatives that vjp and jvp give.
LATTICE_API Arrays differentiable(const Arrays& inputs, Forward forward, Vjp vjp, Jvp jvp);

}  // namespace lattice::graph
