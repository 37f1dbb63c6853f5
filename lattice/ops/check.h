// Checks of arguments that operations share. Every message names the operation that the user
// called, the argument, what was found and what is expected.
#pragma once

#include <mlx/ops.h>
#include <mlx/utils.h>

#include <optional>
#include <string>
#include <string_view>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"

namespace lattice {

// float32, float16 or bfloat16.
template <typename Features>  // an array or a sparse tensor
void check_float(std::string_view operation, const Features& x) {
  graph::visit_float(x.dtype(), [](auto) {}, operation);
}

// (rows, C) of a float dtype; rows < 0: any number.
inline void check_features(std::string_view operation, std::string_view what, const mx::array& a,
                           int64_t rows = -1) {
  if (a.ndim() != 2 || (rows >= 0 && a.shape(0) != rows))
    fail(operation, std::string(what) + " must have shape (" +
                        (rows >= 0 ? std::to_string(rows) : "N") + ", C), got " +
                        shape_text(a.shape()));
  check_float(operation, a);
}

inline void check_same_dtype(std::string_view operation, std::string_view what, mx::Dtype found,
                             mx::Dtype features, std::string_view cure = "") {
  if (found != features)
    fail(operation, std::string(what) + " must have the dtype of the features, got " +
                        graph::dtype_name(found) + " and " + graph::dtype_name(features) +
                        std::string(cure));
}

// (C_out,), or none.
inline void check_bias(std::string_view operation, const std::optional<mx::array>& bias,
                       int64_t c_out) {
  if (bias && (bias->ndim() != 1 || bias->shape(0) != c_out))
    fail(operation,
         "bias must have shape (" + std::to_string(c_out) + ",), got " + shape_text(bias->shape()));
}

}  // namespace lattice
