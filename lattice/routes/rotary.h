// Launchers of rotary position encoding.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

Call rotary_call(const mx::array& x, const Rotary& rotary, mx::StreamOrDevice s);

mx::array rotary_rows(const Call& call, const Route& route);
mx::array rotary_with_mlx(const Call& call);

}  // namespace lattice
