// Launches of kernels/metal/{coords,relations,neighbors}.metal: the rows "metal.*" of the geometry
// operations. int32 coordinates only.
#pragma once

#include "lattice/ops/routes.h"

namespace lattice {

// The routes; results as geometry_routes.h says.
mx::array unique_with_metal(const Call& call);
mx::array lookup_with_metal(const Call& call);
mx::array relate_with_metal(const Call& call);
mx::array neighbors_with_metal(const Call& call);

// Rejects where MLX has no Metal, and coordinates that are not int32.
Rejection needs_hash(const Call& call);
// The same, and a map of 2^31 values or more.
Rejection needs_map_by_hash(const Call& call);

}  // namespace lattice
