/// @file
/// Reads the weights of a saved network, dense and packed.
///
/// `model.save` and `mlx-lattice quantize` write a .safetensors file. A dense weight is one array.
/// A packed weight `name.weight` also has `name.scales` and `name.biases`; the header of the file
/// says its form (QuantizedWeight::form) under the name of the weight.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "lattice/ops/conv.h"

namespace lattice {

/// Name -> array or packed weight; scales and biases of packed weights are inside them. Throws
/// std::invalid_argument that names the file and the weight.
LATTICE_API std::map<std::string, Weight> load_weights(const std::string& path);
/// @cond internal
/// The same from what a file holds; `path` names it in messages.
std::map<std::string, Weight> join_weights(
    std::unordered_map<std::string, mx::array> arrays,
    const std::unordered_map<std::string, std::string>& forms, const std::string& path);
/// @endcond

}  // namespace lattice
