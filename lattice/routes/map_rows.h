// Launchers of map_rows.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array map_rows_segments(const Call& call, const Route& route);
mx::array map_rows_reference(const Call& call, const Route& route);
mx::array map_rows_with_metal(const Call& call);
mx::array map_rows_with_mlx(const Call& call);

}  // namespace lattice
