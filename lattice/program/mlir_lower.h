// An artifact of the older package as a graph of ours: its folder holds graph.mlir and
// weights.safetensors.
#pragma once

#include <string>
#include <utility>

#include "lattice/program/loaded.h"
#include "lattice/program/mlir_text.h"
#include "lattice/program/operation.h"

namespace lattice::program::mlir {

using Arrays = std::map<std::string, mx::array>;

// The graph, and the weights that it names, dense or packed. Throws Error that names the line: a
// missing weight, a weight of another shape or dtype.
std::pair<Graph, Tensors> lower(const Module& module, const Arrays& weights);

// The program of a text and its weights. Throws Error that names the line.
std::shared_ptr<const Loaded> load(const std::string& text, const Arrays& weights);
// The program of a folder with graph.mlir and weights.safetensors. Throws Error.
std::shared_ptr<const Loaded> load_folder(const std::string& folder);

}  // namespace lattice::program::mlir
