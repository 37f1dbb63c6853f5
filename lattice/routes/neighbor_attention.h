// Launchers of attention along edges and of its gradient.
#pragma once

#include <mlx/ops.h>

#include <functional>
#include <limits>

#include "lattice/routes/attention.h"

namespace lattice {

// {out, log-sum-exp}.
graph::Arrays neighbor_attention_rows(const Call& call, const Route& route);
graph::Arrays neighbor_attention_with_mlx(const Call& call, const Route& route);
// Cotangents of the inputs.
graph::Arrays neighbor_attention_vjp_rows(const Call& call, const Route& route);
graph::Arrays neighbor_attention_vjp_with_mlx(const Call& call, const Route& route);

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
