// The one way onto Metal: function templates of kernels/metal/<topic>.metal become an MLX node.
//
// MLX writes the kernel's signature. The final text is MLX's own header, then `header`, then the signature with
// `source` as its body. Inputs arrive as `const device T*`, as `const constant T*` when they have fewer than 8
// elements; outputs are `device T*`, uninitialised unless init_value is given. `grid` counts threads; the last group
// may be partial.
#pragma once

#include <mlx/array.h>
#include <mlx/fast.h>
#include <mlx/utils.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lattice/graph/output_spec.h"

namespace lattice::graph {

struct MetalCall {
  std::string name;                       // unique per source; letters, digits and '_'
  std::string_view header;                // text of the topic: functions, no kernel
  std::string source;                     // body of the kernel: a call of one of them
  std::vector<std::string> input_names;   // one per input
  std::vector<std::string> output_names;  // one per output
  std::vector<OutputSpec> outputs;
  std::vector<std::pair<std::string, mlx::core::fast::TemplateArg>> template_args = {};
  std::array<int, 3> grid = {1, 1, 1};
  std::array<int, 3> threadgroup = {1, 1, 1};
  std::optional<float> init_value = {};
};

// Inputs are made row-contiguous by MLX. An empty grid launches nothing: outputs are init_value, else zero. Throws
// std::runtime_error where MLX has no Metal.
std::vector<mlx::core::array> metal_call(const MetalCall& call, const std::vector<mlx::core::array>& inputs,
                                         mlx::core::StreamOrDevice s = {});

}  // namespace lattice::graph
