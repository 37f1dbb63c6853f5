// The two bilinear operations that every convolution and every derivative of one is made of.
//
//   conv:  y[o, m]    = bias[m] + sum over edges (i, o, k) of sum_c x[i, c] w[k, c, m]
//   outer: u[k, c, m] = sum over edges (i, o, k) of x[i, c] g[o, m]
//
// Derivatives: d conv/dx = conv(dy, w^T, r reversed), d conv/dw = outer(x, dy, r); d outer/dx =
// conv(g, du^T, r reversed), d outer/dg = conv(x, du, r). So both are differentiable to any order.
// With groups, channel c of w counts inside its group: x has c_in channels, w is (n_k, c_in /
// groups, c_out). All arrays have one dtype: float32, float16 or bfloat16. Sums are float32 by
// ascending k, rounded once. `caller` is the operation that a message names.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>

#include "lattice/core/relation.h"

namespace lattice {

mx::array conv(const mx::array& x, const mx::array& w, const Relation::Ptr& relation,
               const std::optional<mx::array>& bias = std::nullopt, int64_t groups = 1,
               mx::StreamOrDevice s = {}, std::string_view caller = "conv");

mx::array outer(const mx::array& x, const mx::array& g, const Relation::Ptr& relation,
                int64_t groups = 1, mx::StreamOrDevice s = {});

// y = x w + bias on (N, c_in) rows: conv on the relation of every row with itself. w is (c_in,
// c_out).
mx::array matmul_rows(const mx::array& x, const mx::array& w,
                      const std::optional<mx::array>& bias = std::nullopt,
                      mx::StreamOrDevice s = {}, std::string_view caller = "linear");

// Sum over rows: (N, C) -> (C,), float32 sums of fixed pieces, rounded once.
mx::array sum_rows(const mx::array& x, mx::StreamOrDevice s = {});

}  // namespace lattice
