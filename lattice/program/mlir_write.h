// A program as an artifact of the older package, version 2, where its 31 operations can say it.
#pragma once

#include <string>

#include "lattice/program/loaded.h"

namespace lattice::program::mlir {

// graph.mlir and the arrays of weights.safetensors. Throws Error with the code `version` that names
// the operation that the format cannot say.
std::pair<std::string, TensorFile> write(const Loaded& program);

}  // namespace lattice::program::mlir
