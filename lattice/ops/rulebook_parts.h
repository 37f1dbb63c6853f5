// Functions that the builders of rulebooks share: checks of arguments, and points in the form that
// kernels read.
#pragma once

#include <mlx/ops.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "lattice/core/errors.h"
#include "lattice/core/point_set.h"
#include "lattice/kernels/cpu/geometry/rulebook.h"

namespace lattice::rulebook_parts {

inline void check_positive(std::string_view function, const char* what, float v) {
  if (!(v > 0) || !std::isfinite(v))
    fail(function, std::string(what) + " must be finite and > 0, got " + std::to_string(v));
}

inline void check_kernel(std::string_view function, int64_t ks) {
  if (ks < 1 || ks > 101)
    fail(function, "kernel_size must be in 1..101, got " + std::to_string(ks));
}

inline void check_stride(std::string_view function, float stride) {
  if (!(stride > 1) || !std::isfinite(stride))
    fail(function, "stride must be > 1, got " + std::to_string(stride));
}

inline void check_batches(std::string_view function, const PointSet& a, const PointSet& b) {
  if (a.batch_size() != b.batch_size())
    fail(function, "both point sets must have the same number of clouds, got " +
                       std::to_string(a.batch_size()) + " and " + std::to_string(b.batch_size()));
}

inline cpu::PointSpan span_of(const PointSet& p) {
  return {p.size() ? p.positions().data<float>() : nullptr, p.size(), p.offsets().data(),
          p.batch_size()};
}

inline mx::array ints(const std::vector<int32_t>& v) {
  return mx::array(v.data(), {static_cast<int>(v.size())}, mx::int32);
}

}  // namespace lattice::rulebook_parts
