// Pooling of rows over a relation, differentiable to any order.
//
//   sum:           y[o] = sum over edges (i, o, k) of w[k] x[i]
//   mean:          that divided by the sum of w[k] over the edges of o
//   mean_adjoint:  sum, with each x[i] divided before by the sum of w[k] over the edges of i: the
//                  adjoint of mean on the reversed relation
//   max:           y[o] = max over edges of x[i]; min likewise
//
// The edges that have the maximum or minimum share its gradient equally, or as `ties` says. The jvp
// takes the edge with the smallest input row. w is one positive value per offset, 1 when empty. A
// row without edges is 0.
#pragma once

#include <mlx/utils.h>

#include <string_view>
#include <vector>

#include "lattice/core/relation.h"
#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/ops/reduce_rows.h"

namespace lattice {

using cpu::PoolMode;

mx::array reduce_edges(const mx::array& x, const Relation::Ptr& relation, PoolMode mode,
                       const std::vector<float>& offset_weights = {}, mx::StreamOrDevice s = {},
                       Ties ties = Ties::split, std::string_view caller = "pool");

}  // namespace lattice
