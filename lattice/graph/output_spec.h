/// @file
/// The shape and dtype of one output of a node. Sizes are fixed when the graph is built.
#pragma once

#include <mlx/array.h>

namespace lattice::graph {

/// One output of a node.
struct OutputSpec {
  mlx::core::Shape shape;  ///< sizes of the axes
  mlx::core::Dtype dtype;  ///< of the elements
};

}  // namespace lattice::graph
