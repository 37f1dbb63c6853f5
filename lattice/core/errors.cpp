#include "lattice/core/errors.h"

namespace lattice {

TypeError::~TypeError() = default;

}  // namespace lattice
