// Errors of the older package's graph text.
#pragma once

#include <string>

#include "lattice/core/errors.h"

namespace lattice::program::mlir {

// "line 7: message" as an Error.
[[noreturn]] inline void fail_at(int line, const std::string& message,
                                 const std::string& operation = {}) {
  throw Error(ErrorCode::file, "[Program.load] line " + std::to_string(line) + ": " + message,
              operation);
}

}  // namespace lattice::program::mlir
