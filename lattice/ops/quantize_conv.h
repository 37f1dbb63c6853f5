// Convolution and matrix product with packed weights.
//
//   y[o, m] = bias[m] + sum over edges (i, o, k) of sum_c x[i, c] W'[k, c, m]
//   W' = scale * code + bias of the group of the code
//
// Derivatives: d/dx is the same operation on the reversed relation with W'^T, read from the same
// codes. So the operation is differentiable in x and bias to any order. Codes, scales and their
// biases are constants: their gradient is 0.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>

#include "lattice/core/quantized_weight.h"
#include "lattice/core/relation.h"

namespace lattice {

// x has the dtype of the scales. The weight's C_in counts inside a convolution group.
mx::array conv(const mx::array& x, const QuantizedWeight& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias = std::nullopt, int64_t groups = 1,
               mx::StreamOrDevice s = {}, std::string_view caller = "conv");

// y = x W' + bias on (N, C_in) rows; w has one offset.
mx::array matmul_rows(const mx::array& x, const QuantizedWeight& w,
                      const std::optional<mx::array>& bias = std::nullopt,
                      mx::StreamOrDevice s = {}, std::string_view caller = "linear");

}  // namespace lattice
