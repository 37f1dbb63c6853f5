// Convolution and matrix product with packed weights, and what routes need of them.
//
//   y[o, m] = bias[m] + sum over edges (i, o, k) of sum_c x[i, c] W'[k, c, m],  W' = scale * code +
//   bias of the code's group
//
// Derivatives: d/dx is the same operation on the reversed relation with W'^T, read from the same
// codes; so it is differentiable in x and bias to any order. Codes, scales and their biases are
// constants: their gradient is 0.
#pragma once

#include <mlx/utils.h>

#include <optional>

#include "lattice/core/quantized_weight.h"
#include "lattice/core/relation.h"
#include "lattice/ops/routes.h"

namespace lattice {

// x has the dtype of the scales. The weight's C_in counts inside a convolution group.
mx::array conv(const mx::array& x, const QuantizedWeight& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias = std::nullopt, int64_t groups = 1,
               mx::StreamOrDevice s = {});

// y = x W' + bias on (N, C_in) rows; w has one offset.
mx::array matmul_rows(const mx::array& x, const QuantizedWeight& w,
                      const std::optional<mx::array>& bias = std::nullopt,
                      mx::StreamOrDevice s = {});

// The call itself, or the same call with its packed weight made dense as a whole.
Call with_dense_weight(const Call& call);
// W[k] of the call, (c_in / groups, c_out), dense; of packed weights only this offset is expanded.
mx::array weight_of_offset(const Call& call, int k);

}  // namespace lattice
