// Pooling over a relation on Metal: its edges by output row are segments (segments_metal.h).
#include <mlx/ops.h>

#include "lattice/routes/pool.h"
#include "lattice/routes/segments_metal.h"

namespace lattice {
namespace {

// One column of the edges, by output row.
mx::array by_output(const Relation& r, const mx::array& column, mx::StreamOrDevice s) {
  return r.edges_by_output() ? column : mx::take(column, r.output_csr().edge_ids, s);
}

// Weights of the edges by output row; none: 1.
std::optional<mx::array> edge_weights(const Call& call, const Relation& r) {
  if (call.reduce().offset_weights.empty() || call.reduce().mode == ReduceMode::max ||
      call.reduce().mode == ReduceMode::min)
    return std::nullopt;
  const mx::array table(call.reduce().offset_weights.data(),
                        {static_cast<int>(call.reduce().offset_weights.size())}, mx::float32);
  return mx::take(table, by_output(r, r.edges().kernel_ids, call.stream), call.stream);
}

// (n_in,) float32: sum of the weights of the edges of each input row.
mx::array input_totals(const Call& call) {
  const auto s = call.stream;
  const Relation::Ptr back = call.relation->reversed();
  const mx::array& offsets = back->output_csr().row_offsets;
  const int n = static_cast<int>(back->n_out());
  if (const auto weights = edge_weights(call, *back))
    return mx::reshape(
        metal_reduce(mx::reshape(*weights, {-1, 1}, s), {offsets, {}, {}, back->output_pieces()},
                     ReduceMode::sum, mx::float32, s),
        {n}, s);
  return mx::astype(
      mx::subtract(mx::slice(offsets, {1}, {n + 1}, s), mx::slice(offsets, {0}, {n}, s), s),
      mx::float32, s);
}

}  // namespace

mx::array pool_with_metal(const Call& call) {
  const auto s = call.stream;
  const Relation& r = *call.relation;
  if (r.edge_count() == 0)
    return mx::zeros({static_cast<int>(call.n_out()), static_cast<int>(call.c_out)}, call.dtype, s);
  MetalSegments segments{r.output_csr().row_offsets, by_output(r, r.edges().in_rows, s),
                         edge_weights(call, r), r.output_pieces()};
  if (call.reduce().mode == ReduceMode::max_match)
    return mx::astype(metal_match(call.inputs[0], call.inputs[1], call.inputs[2], segments, s),
                      call.dtype, s);
  if (call.reduce().mode == ReduceMode::tie_share) {
    const mx::array count = metal_match(call.inputs[0], call.inputs[1], {}, segments, s),
                    none(0.0f);
    const mx::array g = mx::divide(mx::astype(call.inputs[2], mx::float32, s),
                                   mx::maximum(count, mx::array(1.0f), s), s);
    return mx::astype(mx::where(mx::greater(count, none, s), g, none, s), call.dtype, s);
  }
  if (call.reduce().mode == ReduceMode::mean_adjoint) {
    const mx::array w = segments.weights.value_or(mx::array(1.0f));
    segments.weights = mx::divide(w, mx::take(input_totals(call), *segments.rows, s), s);
  }
  return metal_reduce(
      call.inputs[0], segments,
      call.reduce().mode == ReduceMode::mean_adjoint ? ReduceMode::sum : call.reduce().mode,
      call.dtype, s);
}

mx::array argmax_with_metal(const Call& call) {
  const auto s = call.stream;
  const auto segments = [&]() -> MetalSegments {
    if (call.row_groups) return group_segments(*call.row_groups);
    const Relation& r = *call.relation;
    return {r.output_csr().row_offsets, by_output(r, r.edges().in_rows, s), {}, r.output_pieces()};
  };
  return metal_argmax(call.inputs[0], segments(), call.reduce().mode == ReduceMode::min, s);
}

}  // namespace lattice
