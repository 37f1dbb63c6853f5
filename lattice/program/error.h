/// @file
/// What goes wrong with a program: a file that is no program, an input that does not fit, a limit.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "lattice/api.h"

namespace lattice {

/// Kinds of errors; the numbers are those of the C interface.
enum class ErrorCode : int32_t {
  argument = 1,  ///< an input or an option that does not fit
  file = 2,      ///< a file that cannot be read or is no program
  version = 3,   ///< an operation, version or attribute that this library does not know
  limit = 4,     ///< more points, rows or bytes than the options allow
  memory = 5,    ///< the machine has no memory left
  device = 6,    ///< the device cannot do it
  internal = 7,  ///< a mistake of this library
};

/// An error of a program. The text names the operation, the argument, what was found, what is
/// expected and the cure. Python sees ValueError.
class LATTICE_API Error : public std::invalid_argument {
 public:
  /// `operation` and `argument` are also in the text; they may be empty.
  Error(ErrorCode code, const std::string& text, std::string operation = {},
        std::string argument = {})
      : std::invalid_argument(text),
        code_(code),
        operation_(std::move(operation)),
        argument_(std::move(argument)) {}
  ~Error() override;

  /// The kind.
  ErrorCode code() const { return code_; }
  /// What was called, or the operation of the graph.
  const std::string& operation() const { return operation_; }
  /// The input, attribute or option.
  const std::string& argument() const { return argument_; }

 private:
  ErrorCode code_;
  std::string operation_, argument_;
};

}  // namespace lattice
