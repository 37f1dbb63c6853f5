// Attention along edges (kernels/cpu/features/neighbor_attention.h) and its gradient: launches of
// the kernels, and the formula in operations that the caller chooses.
#pragma once

#include <functional>
#include <memory>

#include "lattice/core/neighbors.h"
#include "lattice/graph/differentiable.h"

namespace lattice {

// Inputs: v, then q and k if logits are products, then the bias of the edges if there is one.
struct AttendEdges {
  std::shared_ptr<const EdgeSegments> edges = {};
  float scale = 1;
  bool products = false, biased = false;
  size_t bias_at() const { return products ? 3 : 1; }
  size_t inputs() const { return bias_at() + (biased ? 1 : 0); }
};

// {out, log-sum-exp}.
graph::Arrays launch_neighbor_attention(const AttendEdges& a, const graph::Arrays& in,
                                        mx::StreamOrDevice s);
// Cotangents of the inputs, behind which `in` has out, the log-sum-exp and the cotangent of out.
graph::Arrays launch_neighbor_attention_vjp(const AttendEdges& a, const graph::Arrays& in,
                                            mx::StreamOrDevice s);

// Rows (N, C) to edges (E, C), and edges back to queries.
struct EdgeFunctions {
  using Function = std::function<mx::array(const mx::array&)>;
  Function of_queries, of_sources, sum, max;
};

// {out, log-sum-exp} in operations that are differentiable as they are, with arrays of edges times
// channels.
graph::Arrays neighbor_attention_formula(const AttendEdges& a, const graph::Arrays& in,
                                         const EdgeFunctions& edges, mx::StreamOrDevice s);

}  // namespace lattice
