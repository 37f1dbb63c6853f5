// Weights of a saved network, dense and packed.
//
// `model.save` and `mlx-lattice quantize` write a .safetensors file. A dense weight is one array. A
// packed weight `name.weight` also has `name.scales` and `name.biases`; the header of the file says
// its form (QuantizedWeight::form) under the name of the weight.
#pragma once

#include <map>
#include <string>

#include "lattice/ops/conv.h"

namespace lattice {

// Name -> array or packed weight; scales and biases of packed weights are inside them. Throws
// std::invalid_argument that names the file and the weight.
std::map<std::string, Weight> load_weights(const std::string& path);

}  // namespace lattice
