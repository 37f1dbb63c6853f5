/// @file
/// What the public headers share: MLX under a short name, the choices that users make, and types of
/// the kernels that only the library looks into.
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

/// Who gets the gradient of a maximum that several rows have: an equal part each, all of it each,
/// or the smallest row.
enum class Ties { split, all, first };

}  // namespace lattice
