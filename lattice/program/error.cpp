#include "lattice/program/error.h"

namespace lattice {

// Here, so that the type information of the class lies in this library.
Error::~Error() = default;

}  // namespace lattice
