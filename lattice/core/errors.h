/// @file
/// Errors and what Python sees: std::invalid_argument -> ValueError, std::overflow_error ->
/// OverflowError, lattice::TypeError -> TypeError. A message reads "[operation] argument ... found
/// ... expected".
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "lattice/api.h"

namespace lattice {

/// A value of the wrong kind: a float where an integer is wanted, a weight that is no array. It
/// crosses from one library to another, so its type information must be visible.
class LATTICE_API TypeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~TypeError() override;
};

/// Throws std::invalid_argument "[operation] message".
[[noreturn]] LATTICE_API void fail(std::string_view operation, const std::string& message);

/// Kernels name no operation: f(), with the operation in front of what its kernels throw.
/// std::overflow_error stays; std::length_error becomes std::invalid_argument.
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
