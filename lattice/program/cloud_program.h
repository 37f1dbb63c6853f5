// The internal part that Segmenter and Detector share: a program that takes clouds.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/core/cloud.h"
#include "lattice/core/errors.h"
#include "lattice/program/program.h"

namespace lattice::program {

// A program with its limits and properties.
struct CloudProgram {
  Program program;
  ProgramLimits limits;
  bool keeps_place;  // positions are not moved to their low corner
  std::vector<std::pair<int64_t, std::string>> classes;

  // Reads a file whose program has the input `points` and the output `output`; `cure` says how to
  // write one. Throws Error.
  static CloudProgram load(const char* operation, const std::string& path, int threads,
                           const ProgramLimits& limits, const char* output, const char* cure);
  // Throws Error when the cloud has more points than the limit.
  void check_size(const char* operation, const Cloud& cloud) const;
  // The inputs of the program. Throws Error when a column is missing or of another width.
  ProgramValues inputs(const char* operation, const Cloud& cloud) const;
  // The columns that a cloud must have, with the number of values per point.
  std::vector<std::pair<std::string, int64_t>> columns() const;
};

// An output as an array in row-major order on the CPU.
mx::array output_of(const char* operation, const ProgramValues& outputs, const char* name,
                    mx::Dtype dtype);

[[noreturn]] void refuse(const char* operation, const std::string& argument,
                         const std::string& text, ErrorCode code = ErrorCode::argument);

// Calls a function and turns every exception into an Error.
template <typename F>
auto guarded(const char* operation, const F& f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    refuse(operation, "", "the machine has no memory left", ErrorCode::memory);
  } catch (const std::logic_error& error) {
    throw Error(ErrorCode::argument, error.what(), operation);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::internal, error.what(), operation);
  }
}

}  // namespace lattice::program
