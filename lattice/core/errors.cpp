#include "lattice/core/errors.h"

namespace lattice {

TypeError::~TypeError() = default;

void fail(std::string_view operation, const std::string& message) {
  throw std::invalid_argument("[" + std::string(operation) + "] " + message);
}

}  // namespace lattice
