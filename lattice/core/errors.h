/// @file
/// The errors of the library and the Python exceptions they become: std::invalid_argument ->
/// ValueError, std::overflow_error -> OverflowError, lattice::TypeError -> TypeError. A message
/// reads "[operation] argument ... found ... expected". Programs and files throw lattice::Error,
/// which has a code.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lattice/api.h"

namespace lattice {

/// A value of the wrong kind: a float where an integer is wanted, a weight that is no array. It
/// crosses from one library to another, so its type information must be visible.
class LATTICE_API TypeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~TypeError() override;
};

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

/// An error of a program or of a file. The text names the operation, the argument, what was found,
/// what is expected and the cure. Python sees ValueError.
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

/// Throws std::invalid_argument "[operation] message".
[[noreturn]] LATTICE_API void fail(std::string_view operation, const std::string& message);

/// Calls f() and puts the name of the operation in front of the messages of its kernels, which do
/// not know it. std::overflow_error stays; std::length_error becomes std::invalid_argument.
template <typename F>
auto named(std::string_view operation, const F& f) {
  try {
    return f();
  } catch (const std::overflow_error& e) {
    throw std::overflow_error("[" + std::string(operation) + "] " + e.what());
  } catch (const std::length_error& e) {
    fail(operation, e.what());
  }
}

}  // namespace lattice
