// The one way onto the CPU: a function on raw memory becomes an MLX node.
//
//   outputs = cpu_call(name, key, inputs, specs, run)
//   run(inputs, outputs) happens when MLX evaluates the node
//
// 1. Outputs are allocated, not initialized; run writes every element.
// 2. run is called on the thread of an MLX stream. It touches no mx::array and evaluates nothing: a
//    node that waits for another node of its own stream never ends. The text of an exception that
//    run throws reaches whoever evaluates, as std::runtime_error; outputs that MLX still takes for
//    evaluated are NaN or -1. Errors of the user are found earlier, when the graph is built.
// 3. Two nodes with equal name and key on equal inputs are one node for mx.compile. So the key
//    spells out every scalar and every captured object that run depends on.
// 4. A GPU stream or device runs the node on the default CPU stream; memory is shared.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lattice/graph/output_spec.h"

namespace lattice::graph {

// One input as run sees it. Elements may be strided (counted in elements) unless the caller used
// row_contiguous(), and data is only aligned to its element.
struct Input {
  const void* data;
  mlx::core::Shape shape;
  mlx::core::Strides strides;
  mlx::core::Dtype dtype;
  int64_t size;
  bool row_contiguous;
  std::weak_ptr<const void> owner;  // of data: expires when MLX frees the memory
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// One output, row-contiguous.
struct Output {
  void* data;
  mlx::core::Shape shape;
  mlx::core::Dtype dtype;
  int64_t size;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

using CpuFunction = std::function<void(std::span<const Input>, std::span<const Output>)>;

// What may be done with a result in the pass that makes it: further inputs, and an option. `extend`
// makes a node that does both, from the inputs of the node and the extension.
struct Extension {
  std::vector<mlx::core::array> inputs;
  bool option;
};
using Extend = std::function<mlx::core::array(const std::vector<mlx::core::array>& inputs,
                                              const Extension& extension)>;

std::vector<mlx::core::array> cpu_call(std::string name, std::string key,
                                       const std::vector<mlx::core::array>& inputs,
                                       std::vector<OutputSpec> outputs, CpuFunction run,
                                       mlx::core::StreamOrDevice s = {}, Extend extend = {});

// `a` with the extension. There is none unless `a` is the only result of a node that has `extend`
// and was not evaluated yet. There is none while something is differentiated or compiled. Whoever
// else reads `a` makes it once more.
std::optional<mlx::core::array> extended(const mlx::core::array& a, const Extension& extension);

// The inputs of the node `name` that makes `a`, under the same conditions. Whoever reads them can
// do without `a`.
std::optional<std::vector<mlx::core::array>> inputs_of(const mlx::core::array& a,
                                                       std::string_view name);

// The CPU stream that cpu_call uses for s.
mlx::core::Stream cpu_stream(mlx::core::StreamOrDevice s = {});

// The same values in row-major order without gaps; no copy when they are already.
mlx::core::array row_contiguous(const mlx::core::array& a, mlx::core::StreamOrDevice s = {});

}  // namespace lattice::graph
