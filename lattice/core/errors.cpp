#include "lattice/core/errors.h"

namespace lattice {

// Here, so that the type information of the classes lies in this library.
TypeError::~TypeError() = default;
Error::~Error() = default;

void fail(std::string_view operation, const std::string& message) {
  throw std::invalid_argument("[" + std::string(operation) + "] " + message);
}

}  // namespace lattice
