// Makes an MLX node from function templates of kernels/metal/<topic>.metal, on Metal or on CUDA.
// All work of the library on a GPU goes through this function.
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
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/api.h"
#include "lattice/graph/output_spec.h"
#include "lattice/kernels/metal/text.h"

namespace lattice::graph {

// The language that the GPU understands.
enum class GpuBackend { none, metal, cuda };
// The backend that MLX has on this machine.
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
  // Inputs that may be any view. The source reads `<name>_strides`, as MLX gives them.
  std::vector<std::string> strided = {};
};

// Inputs are row-contiguous, if necessary by a copy, but for those that `strided` names. An empty
// grid launches nothing: outputs are init_value, else zero. Throws std::runtime_error where MLX has
// no such GPU.
std::vector<mlx::core::array> gpu_call(const GpuCall& call,
                                       const std::vector<mlx::core::array>& inputs,
                                       mlx::core::StreamOrDevice s = {});
// Kernels that gpu_call() launched in this process: nodes that were made, also such that nobody
// evaluated.
int64_t gpu_launches();

// The tensor API of Metal 4. 8 x 8 simdgroup matrices are there on every tier.
enum class TensorOps {
  unavailable,         // no Metal, macOS before 26.2, or a GPU before generation 13
  gpu,                 // the API, without units of its own
  neural_accelerator,  // generation 17 or later, 18 where the name of the GPU ends in p
};

// Lets tests pretend that the machine has a GPU. The library only reads it; the code that fills it
// is in tests/ (tests/metal runs the text of the kernels on the CPU).
struct StandIn {
  using Arrays = std::vector<mlx::core::array>;
  // Runs a kernel. The call is in the words of the backend, and the inputs are row-contiguous
  // when they are evaluated. `launch` asks MLX for the node that a real GPU would run. While it is
  // set, every stream counts as one of a GPU for the choice of routes; arrays stay on the CPU.
  std::function<Arrays(const GpuCall& call, const Arrays& inputs,
                       const std::function<Arrays(const Arrays&)>& launch)>
      run = {};
  GpuBackend backend = GpuBackend::metal;
  std::optional<TensorOps> tensor_ops = {};  // in place of the machine's
  std::optional<bool> probing = {};          // whether routes are probed; default: on a real GPU
  bool tf32_products = false;                // MLX's products round float32 to TF32
};

// Empty in a program; set it while no other thread uses the library.
LATTICE_API StandIn& stand_in();

}  // namespace lattice::graph
