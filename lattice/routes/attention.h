// Launchers of attention and of its gradient.
#pragma once

#include <functional>
#include <variant>

#include "lattice/graph/output_spec.h"
#include "lattice/routes/route.h"

namespace lattice {

// Inputs as the payload documents them.
Call attention_call(Operation operation, std::variant<Attend, AttendEdges> payload,
                    graph::Arrays inputs, mx::StreamOrDevice s);
// Shapes and dtypes of the first n inputs, which those of their cotangents are too.
std::vector<graph::OutputSpec> cotangents(const Call& call, size_t n);

// {out, log-sum-exp}.
graph::Arrays attention_tiles(const Call& call, const Route& route);
graph::Arrays attention_with_metal(const Call& call, const Route& route);
// Equal segments without bias, which MLX's own kernel takes; it gives no log-sum-exp.
Rejection needs_equal_segments(const Call& call);
graph::Arrays attention_with_sdpa(const Call& call, const Route& route);
graph::Arrays attention_with_mlx(const Call& call, const Route& route);
// Cotangents of q, k, v and of the bias or table.
graph::Arrays attention_vjp_tiles(const Call& call, const Route& route);
Rejection has_no_table(const Call& call);
graph::Arrays attention_vjp_with_metal(const Call& call, const Route& route);
graph::Arrays attention_vjp_with_mlx(const Call& call, const Route& route);

// {out, log-sum-exp} in MLX operations, differentiable as they are: one product of matrices per run
// of segments of one length, with arrays of all pairs. Inputs: q, k, v and the bias or table.
// lookup(table (H, entries), indices) gives (H, indices); by default MLX's take, which lacks
// tangents of its gradient.
using Lookup = std::function<mx::array(const mx::array& table, const mx::array& indices)>;
graph::Arrays attention_formula(const Attend& attend, const graph::Arrays& in, mx::StreamOrDevice s,
                                const Lookup& lookup = {});

}  // namespace lattice
