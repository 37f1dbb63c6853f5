// Random relation cases for property tests: coordinate sets with negative values and several
// batches, at every end of int32 and int64, with anisotropic kernels. The same seed gives the same
// case.
#pragma once

#include <string>

#include "tests/support/oracle.h"

namespace lattice::support {

struct Case {
  uint64_t seed = 0;
  Kind kind = Kind::forward;
  bool is64 = false;
  std::vector<Coordinate> in;      // distinct
  std::vector<Coordinate> target;  // target kinds only; duplicates are possible
  Spec spec;
  // One line for a failing test's message.
  std::string text() const;
};

Case random_case(uint64_t seed);

// Rows as the flat array that the library reads.
template <typename T>
std::vector<T> flat(const std::vector<Coordinate>& rows) {
  std::vector<T> out;
  out.reserve(rows.size() * 4);
  for (const Coordinate& row : rows)
    for (int64_t v : row) out.push_back(static_cast<T>(v));
  return out;
}
// And back; n * 4 values.
template <typename T>
std::vector<Coordinate> rows(const T* values, int64_t n) {
  std::vector<Coordinate> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n * 4; ++i)
    out[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)] = values[i];
  return out;
}

// n values in [-1, 1), from a seed.
Values random_values(int64_t n, uint64_t seed);

}  // namespace lattice::support
