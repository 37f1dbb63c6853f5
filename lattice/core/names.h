/// @file
/// What the public headers share: a short name for MLX, the enumerations that users choose from,
/// and types of the kernels, which only the library looks into.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include "lattice/api.h"
#include "lattice/kernels/cpu/base/choices.h"

/// @cond internal
namespace lattice::cpu {
struct Box;
struct CoordIndex;
struct CoordSpan;
struct Kernel;
struct NeighborQuery;
struct Neighbors;
struct RelationLists;
struct TileBounds;
struct WeightPanels;
}  // namespace lattice::cpu
/// @endcond

namespace lattice {

namespace mx = mlx::core;
using cpu::Bounds;
using cpu::Coverage;
using cpu::Curve;
using cpu::Join;
using cpu::Reduction;
using cpu::RowOrder;
using cpu::Triple;

/// Which rows get the gradient when several have the maximum: an equal share for each, the whole
/// gradient for each, or all of it for the smallest row.
enum class Ties { split, all, first };

}  // namespace lattice
