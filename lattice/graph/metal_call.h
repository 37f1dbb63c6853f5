// The one way onto Metal: function templates of kernels/metal/<topic>.metal become an MLX node.
//
// MLX writes the kernel's signature. The final text is MLX's own header, then `header`, then the
// signature with `source` as its body. Inputs arrive as `const device T*`, as `const constant T*`
// when they have fewer than 8 elements; outputs are `device T*`, uninitialized unless init_value is
// given. `grid` counts threads; the last group may be partial.
#pragma once

#include <mlx/array.h>
#include <mlx/fast.h>
#include <mlx/utils.h>

#include <array>
#include <functional>
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

// Inputs are made row-contiguous by MLX. An empty grid launches nothing: outputs are init_value,
// else zero. Throws std::runtime_error where MLX has no Metal and no host is set.
std::vector<mlx::core::array> metal_call(const MetalCall& call,
                                         const std::vector<mlx::core::array>& inputs,
                                         mlx::core::StreamOrDevice s = {});

// What MLX would hand to Metal, read from MLX's own node.
struct MetalLaunch {
  std::string name;  // of the kernel function
  std::string text;  // all that is compiled behind MLX's header
  std::array<int, 3> grid = {}, threadgroup = {};
  std::vector<std::array<bool, 3>>
      shape_info;  // per input: whether its shape, strides, ndim are arguments too
  std::vector<OutputSpec> outputs;
  std::optional<float> init_value;
};

// Runs launches where there is no Metal: tests set one to execute the kernels' text on the CPU. The
// inputs are evaluated and row-contiguous. While it is set every stream counts as one of a GPU for
// the choice of routes; arrays stay on the CPU.
using MetalHost = std::function<std::vector<mlx::core::array>(
    const MetalLaunch& launch, const std::vector<mlx::core::array>& inputs)>;
void set_metal_host(MetalHost host);  // empty: none
bool has_metal_host();

}  // namespace lattice::graph
