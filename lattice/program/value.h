/// @file
/// Values of a program while it runs, and their types while it is checked.
#pragma once

#include <mlx/array.h>

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// A value that is neither an array nor a sparse tensor: a layout of attention, a set of points, a
/// relation. `kind` says what it is, as the table of operations writes it.
struct ProgramObject {
  std::string kind;                  ///< "layout", "pooling", "points", ...
  std::shared_ptr<const void> held;  ///< the object
};

/// An operand or result of an operation of a program; monostate stands for an absent operand.
using ProgramValue = std::variant<std::monostate, mx::array, SparseTensor, ProgramObject>;
/// Values by the names of inputs or outputs.
using ProgramValues = std::map<std::string, ProgramValue>;

/// The type of an input or output.
struct ProgramType {
  std::string kind = "array";       ///< "array", "sparse", or the kind of an object
  mx::Dtype dtype = mx::float32;    ///< of the array or of the features
  std::vector<int64_t> shape = {};  ///< -1: any size; of "sparse" the shape of the features
  Triple stride = {1, 1, 1};        ///< of "sparse"
  std::string lengths_of = {};      ///< the input whose rows these numbers split into clouds
};

/// An input or output of a program.
struct ProgramPort {
  std::string name;  ///< as `run` takes or returns it
  ProgramType type;  ///< of its value
};

}  // namespace lattice
