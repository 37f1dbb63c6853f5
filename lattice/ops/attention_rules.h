// The derivative rules that attention in segments and attention along edges share.
#pragma once

#include <functional>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"

namespace lattice {

// `formula` computes the same as the kernels, in operations that have derivatives of any order.
struct AttentionRules {
  using Function = std::function<graph::Arrays(const graph::Arrays&)>;
  Function forward;   // inputs -> {out, log-sum-exp}
  Function backward;  // inputs, out, log-sum-exp, cotangent of out -> cotangents of the inputs
  Function formula;   // inputs -> {out, log-sum-exp}
};

// The result of `forward`, with derivatives.
mx::array attend(const graph::Arrays& inputs, const AttentionRules& rules, mx::StreamOrDevice s);

}  // namespace lattice
