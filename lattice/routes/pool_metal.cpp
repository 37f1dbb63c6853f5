// Pooling over a relation on Metal: its edges by output row are segments (segments_metal.h).
#include <mlx/ops.h>

#include "lattice/routes/pool.h"
#include "lattice/routes/segments_metal.h"

namespace lattice::routes {
namespace {

// One column of the edges, by output row.
mx::array by_output(const Relation& r, const mx::array& column, mx::StreamOrDevice s) {
  return r.edges_by_output() ? column : mx::take(column, r.output_csr().edge_ids, s);
}

// Weights of the edges by output row; none: 1.
std::optional<mx::array> edge_weights(const PoolAsked& asked, const Relation& r) {
  if (asked.offset_weights.empty() || asked.mode == ReduceMode::max ||
      asked.mode == ReduceMode::min)
    return std::nullopt;
  const mx::array table(asked.offset_weights.data(),
                        {static_cast<int>(asked.offset_weights.size())}, mx::float32);
  return mx::take(table, by_output(r, r.edges().kernel_ids, asked.stream), asked.stream);
}

// (n_in,) float32: sum of the weights of the edges of each input row.
mx::array input_totals(const PoolAsked& asked) {
  const auto s = asked.stream;
  const Relation::Ptr back = asked.relation->reversed();
  const mx::array& offsets = back->output_csr().row_offsets;
  const int n = static_cast<int>(back->n_out());
  if (const auto weights = edge_weights(asked, *back))
    return mx::reshape(
        metal_reduce(mx::reshape(*weights, {-1, 1}, s), {offsets, {}, {}, back->output_pieces()},
                     ReduceMode::sum, mx::float32, s),
        {n}, s);
  return mx::astype(
      mx::subtract(mx::slice(offsets, {1}, {n + 1}, s), mx::slice(offsets, {0}, {n}, s), s),
      mx::float32, s);
}

}  // namespace

mx::array pool_with_metal(const PoolAsked& asked) {
  const auto s = asked.stream;
  const Relation& r = *asked.relation;
  const mx::array& x = asked.x;
  if (r.edge_count() == 0)
    return mx::zeros({static_cast<int>(r.n_out()), x.shape(1)}, x.dtype(), s);
  MetalSegments segments{r.output_csr().row_offsets, by_output(r, r.edges().in_rows, s),
                         edge_weights(asked, r), r.output_pieces()};
  if (asked.mode == ReduceMode::max_match)
    return mx::astype(metal_match(asked.match->top, asked.match->value, x, segments, s), x.dtype(),
                      s);
  if (asked.mode == ReduceMode::tie_share) {
    const mx::array count = metal_match(asked.match->top, asked.match->value, {}, segments, s),
                    none(0.0f);
    const mx::array g =
        mx::divide(mx::astype(x, mx::float32, s), mx::maximum(count, mx::array(1.0f), s), s);
    return mx::astype(mx::where(mx::greater(count, none, s), g, none, s), x.dtype(), s);
  }
  if (asked.mode == ReduceMode::mean_adjoint) {
    const mx::array w = segments.weights.value_or(mx::array(1.0f));
    segments.weights = mx::divide(w, mx::take(input_totals(asked), *segments.rows, s), s);
  }
  return metal_reduce(x, segments, plain_mode(asked.mode), x.dtype(), s);
}

mx::array argmax_with_metal(const ArgmaxAsked& asked) {
  const auto s = asked.stream;
  const auto segments = [&]() -> MetalSegments {
    if (asked.groups) return group_segments(*asked.groups);
    const Relation& r = *asked.relation;
    return {r.output_csr().row_offsets, by_output(r, r.edges().in_rows, s), {}, r.output_pieces()};
  };
  return metal_argmax(asked.x, segments(), asked.minimum, s);
}

}  // namespace lattice::routes
