// Shape and dtype of one output of a node. Sizes are fixed when the graph is built.
#pragma once

#include <mlx/array.h>

namespace lattice::graph {

struct OutputSpec {
  mlx::core::Shape shape;
  mlx::core::Dtype dtype;
};

}  // namespace lattice::graph
