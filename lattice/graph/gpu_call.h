// The one way onto a GPU: function templates of kernels/metal/<topic>.metal become an MLX node, on
// Metal or on CUDA.
//
// MLX writes the kernel's signature. The final text is MLX's own header, then the topic's text in
// the words of the backend, then the signature with a body. The body declares the memory of a
// group, then holds `source`. `source` names threads by the words of Metal.
//
//   Metal   inputs arrive as `const device T*`, as `const constant T*` when they have fewer than 8
//           elements; the last group of an axis may be partial
//   CUDA    inputs arrive as `const T*`; groups are whole and lie along one axis. One more input,
//           `launch`, tells a thread its place. Threads beyond the grid return first.
//
// Outputs are uninitialized unless init_value is given. `grid` counts threads.
#pragma once

#include <mlx/array.h>
#include <mlx/fast.h>
#include <mlx/utils.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/graph/output_spec.h"
#include "lattice/kernels/metal/text.h"

namespace lattice::graph {

// Whose words the GPU understands.
enum class GpuBackend { none, metal, cuda };
// Of the running MLX, or of the host that stands in.
GpuBackend gpu_backend();

// An array that the threads of a group share: type name[length]. Its bytes start at a multiple of
// 16.
struct SharedArray {
  std::string type, name, length;
};

struct GpuCall {
  std::string name;                       // unique per source; letters, digits and '_'
  metal::Text header;                     // text of the topic: functions, no kernel
  std::string source;                     // body of the kernel: a call of one of them
  std::vector<std::string> input_names;   // one per input
  std::vector<std::string> output_names;  // one per output
  std::vector<OutputSpec> outputs;
  std::vector<std::pair<std::string, mlx::core::fast::TemplateArg>> template_args = {};
  std::array<int, 3> grid = {1, 1, 1};
  std::array<int, 3> threadgroup = {1, 1, 1};
  std::optional<float> init_value = {};
  std::vector<SharedArray> shared = {};  // with it, every group must be whole
};

// Inputs are made row-contiguous by MLX. An empty grid launches nothing: outputs are init_value,
// else zero. Throws std::runtime_error where MLX has no such GPU and no host is set.
std::vector<mlx::core::array> gpu_call(const GpuCall& call,
                                       const std::vector<mlx::core::array>& inputs,
                                       mlx::core::StreamOrDevice s = {});

// What MLX would hand to the GPU.
struct GpuLaunch {
  GpuBackend backend = GpuBackend::metal;
  std::string name;  // of the kernel function; on CUDA what MLX makes the name of
  std::string text;  // Metal: all that is compiled behind MLX's header. CUDA: the header
  std::array<int, 3> grid = {}, threadgroup = {};
  std::vector<std::array<bool, 3>>
      shape_info;  // per input: whether its shape, strides, ndim are arguments too
  std::vector<OutputSpec> outputs;
  std::optional<float> init_value;
  // Of CUDA, whose text MLX writes only where there is CUDA.
  std::string source;
  std::vector<std::string> input_names, output_names;
  std::vector<std::pair<std::string, mlx::core::fast::TemplateArg>> template_args;
};

// Runs launches where there is no GPU: tests set one to execute the kernels' text on the CPU. The
// inputs are evaluated and row-contiguous. While it is set every stream counts as one of a GPU for
// the choice of routes; arrays stay on the CPU.
using GpuHost = std::function<std::vector<mlx::core::array>(
    const GpuLaunch& launch, const std::vector<mlx::core::array>& inputs)>;
void set_gpu_host(GpuHost host, GpuBackend backend = GpuBackend::metal);  // empty: none
bool has_gpu_host();

}  // namespace lattice::graph
