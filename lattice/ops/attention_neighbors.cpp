// Attention along edges: checks, and the formula that has derivatives of any order.
#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/attention_edges.h"
#include "lattice/ops/attention_rules.h"
#include "lattice/ops/check.h"
#include "lattice/ops/reduce_rows.h"

namespace lattice {
namespace {

using graph::Arrays;
constexpr const char* kName = "neighbor_attention";

void check_rows(const char* what, const mx::array& x, int64_t rows, const mx::array& v) {
  if (x.ndim() != 3 || x.shape(0) != rows || x.shape(1) != v.shape(1) || x.shape(2) != v.shape(2))
    fail(kName, std::string(what) + " must have shape (" + std::to_string(rows) + ", " +
                    std::to_string(v.shape(1)) + ", " + std::to_string(v.shape(2)) + "), got " +
                    shape_text(x.shape()));
  if (x.dtype() != v.dtype())
    fail(kName, "q, k and v must have one dtype, got " + graph::dtype_name(x.dtype()) + " and " +
                    graph::dtype_name(v.dtype()));
}

// {out, log-sum-exp} in operations that have derivatives of any order.
Arrays formula(const AttendEdges& a, const Arrays& in, mx::StreamOrDevice s) {
  const EdgeSegments& edges = *a.edges;
  const RowGroups::Ptr queries = groups_of(edges.queries, edges.n_queries),
                       sources = groups_of(edges.sources, edges.n_sources);
  return neighbor_attention_formula(
      a, in,
      {[=](const mx::array& x) { return gather_rows(x, queries, 0, s); },
       [=](const mx::array& x) { return gather_rows(x, sources, 0, s); },
       [=](const mx::array& x) { return reduce_rows(x, queries, Reduction::sum, s); },
       [=](const mx::array& x) { return reduce_rows(x, queries, Reduction::max, s); }},
      s);
}

}  // namespace

mx::array neighbor_attention(const std::optional<mx::array>& q, const std::optional<mx::array>& k,
                             const mx::array& v, EdgeSegments edges,
                             const NeighborAttentionOptions& options, mx::StreamOrDevice s) {
  if (v.ndim() != 3 || v.shape(0) != edges.n_sources || v.shape(1) < 1 || v.shape(2) < 1)
    fail(kName, "v must have shape (" + std::to_string(edges.n_sources) +
                    ", heads, D), one row for each source, got " + shape_text(v.shape()));
  check_float(kName, v);
  if (q.has_value() != k.has_value()) fail(kName, "q and k must be given together, or neither");
  if (!q && !options.bias)
    fail(kName, "bias must hold the logits of the edges where q and k are not given");
  AttendEdges a;
  a.products = q.has_value();
  a.biased = options.bias.has_value();
  a.scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(v.shape(2))));
  if (!std::isfinite(a.scale)) fail(kName, "scale must be finite, got " + std::to_string(a.scale));
  Arrays inputs = {v};
  if (q) {
    check_rows("q", *q, edges.n_queries, v);
    check_rows("k", *k, edges.n_sources, v);
    inputs.insert(inputs.end(), {*q, *k});
  }
  if (options.bias) {
    const mx::array& bias = *options.bias;
    if (bias.ndim() != 2 || bias.shape(0) != edges.n_edges() || bias.shape(1) != v.shape(1))
      fail(kName, "bias must have shape (" + std::to_string(edges.n_edges()) + ", " +
                      std::to_string(v.shape(1)) + "), one row for each edge, got " +
                      shape_text(bias.shape()));
    check_float(kName, bias);
    const mx::array logits = as_float32(bias, s);
    inputs.push_back(
        edges.order ? gather_rows(logits, groups_of(*edges.order, edges.n_edges()), 0, s) : logits);
  }
  a.edges = std::make_shared<const EdgeSegments>(std::move(edges));
  return attend(inputs,
                {[=](const Arrays& in) { return launch_neighbor_attention(a, in, s); },
                 [=](const Arrays& in) { return launch_neighbor_attention_vjp(a, in, s); },
                 [=](const Arrays& in) { return formula(a, in, s); }},
                s);
}

}  // namespace lattice
