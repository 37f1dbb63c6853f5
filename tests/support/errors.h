// The message of what f throws; "no error" when it does not.
#pragma once

#include <stdexcept>
#include <string>

namespace lattice::support {

template <typename F>
std::string message(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace lattice::support
