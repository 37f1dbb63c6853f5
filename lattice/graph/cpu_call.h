/// @file
/// Makes an MLX node from a function on raw memory. All work of the library on the CPU goes through
/// this function.
///
///     outputs = cpu_call(name, key, inputs, specs, run)
///     run(inputs, outputs) happens when MLX evaluates the node
///
/// Outputs are allocated, not initialized: run writes every element.
///
/// run is called on the thread of an MLX stream. It touches no mx::array and evaluates nothing: a
/// node that waits for another node of its own stream never ends. It should not throw. Errors of
/// the user are found earlier, when the graph is built, and MLX takes the memory of the outputs on
/// the thread that evaluates. If run throws all the same, because a kernel found no memory for its
/// own use, floats of the outputs are NaN and integers -1, and the next cpu_call throws
/// std::runtime_error with the name of the node and the text.
///
/// Two nodes with equal name and key on equal inputs are one node for mx.compile. So the key spells
/// out every scalar and every captured object that run depends on.
///
/// A GPU stream or device runs the node on the default CPU stream; memory is shared.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lattice/api.h"
#include "lattice/graph/output_spec.h"

namespace lattice::graph {

/// One input as run sees it. Elements may be strided (counted in elements) unless the caller used
/// row_contiguous(), and data is only aligned to its element.
struct Input {
  const void* data;            ///< first element
  mlx::core::Shape shape;      ///< as MLX has it
  mlx::core::Strides strides;  ///< counted in elements
  mlx::core::Dtype dtype;      ///< of the elements
  int64_t size;                ///< number of elements
  bool row_contiguous;         ///< whether elements are in row-major order without gaps
  /// data as elements of T.
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

/// One output, row-contiguous.
struct Output {
  void* data;              ///< first element, to be written
  mlx::core::Shape shape;  ///< as MLX has it
  mlx::core::Dtype dtype;  ///< of the elements
  int64_t size;            ///< number of elements
  /// data as elements of T.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Reads the inputs and writes every element of the outputs.
using CpuFunction = std::function<void(std::span<const Input>, std::span<const Output>)>;

/// The outputs of a node `name` that calls run(inputs, outputs) when MLX evaluates it. `key` spells
/// out what run depends on. Throws std::invalid_argument for a shape that has a negative size.
LATTICE_API std::vector<mlx::core::array> cpu_call(std::string name, std::string key,
                                                   const std::vector<mlx::core::array>& inputs,
                                                   std::vector<OutputSpec> outputs, CpuFunction run,
                                                   mlx::core::StreamOrDevice s = {});

/// The CPU stream that cpu_call uses for s.
LATTICE_API mlx::core::Stream cpu_stream(mlx::core::StreamOrDevice s = {});

/// The same values in row-major order without gaps; no copy when they are already.
LATTICE_API mlx::core::array row_contiguous(const mlx::core::array& a,
                                            mlx::core::StreamOrDevice s = {});

}  // namespace lattice::graph
