#include "lattice/ops/device.h"

#include "lattice/routes/capability.h"

namespace lattice {

bool default_is_gpu() { return on_gpu({}); }

}  // namespace lattice
