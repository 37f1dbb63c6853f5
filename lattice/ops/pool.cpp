#include "lattice/ops/pool.h"

#include <mlx/ops.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/ops/batch_rows.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/reduce_edges.h"
#include "lattice/routes/capability.h"

namespace lattice {
namespace {

void check_tensor(const std::string& op, const SparseTensor& x, mx::StreamOrDevice s) {
  check_float(op, x);
  check_coords_on_device(op, x.coords(), s);
}

// Mean over the edges onto the target, or onto every place that an input reaches.
SparseTensor upsample(const std::string& op, const SparseTensor& x,
                      const std::optional<TargetCoords>& target, const KernelSpec& spec,
                      const std::vector<float>& weights, mx::StreamOrDevice s) {
  check_tensor(op, x, s);
  const RelationKind kind = target ? RelationKind::target_transposed : RelationKind::transposed;
  const Relation::Ptr r = relation(kind, x, spec, target, s, op);
  return result_on(x, *r->out_key(),
                   reduce_edges(x.feats(), r, PoolMode::mean, weights, s, Ties::split, op));
}

// per_batch on the rows of x.
mx::array on_rows(const std::string& op, const SparseTensor& x, const mx::array& per_batch,
                  bool same_channels, mx::StreamOrDevice s) {
  check_tensor(op, x, s);
  if (per_batch.ndim() != 2 || (same_channels && per_batch.shape(1) != x.channels()))
    fail(op, "per_batch must have shape (B, " +
                 (same_channels ? std::to_string(x.channels()) : std::string("C")) + "), got " +
                 shape_text(per_batch.shape()));
  if (per_batch.dtype() != x.dtype())
    fail(op, "per_batch must have the dtype of the features, got " +
                 graph::dtype_name(per_batch.dtype()) + " and " + graph::dtype_name(x.dtype()));
  if (per_batch.shape(0) < x.batch_size())
    fail(op, "per_batch must have a row for each of " + std::to_string(x.batch_size()) +
                 " batch items, got " + std::to_string(per_batch.shape(0)));
  return gather_rows(per_batch, batch_groups(x, per_batch.shape(0)), 0, s);
}

}  // namespace

SparseTensor pool3d(const SparseTensor& x, Reduction mode, const KernelSpec& spec,
                    mx::StreamOrDevice s, const std::string& caller, Support support, Ties ties) {
  check_tensor(caller, x, s);
  const auto [kind, kernel] = supported(RelationKind::forward, x, spec, support, caller);
  const Relation::Ptr r = relation(kind, x, kernel, std::nullopt, s, caller);
  const PoolMode how = mode == Reduction::sum    ? PoolMode::sum
                       : mode == Reduction::mean ? PoolMode::mean
                                                 : PoolMode::max;
  return result_on(x, *r->out_key(), reduce_edges(x.feats(), r, how, {}, s, ties, caller));
}

SparseTensor pool_transpose3d(const SparseTensor& x, const std::optional<TargetCoords>& target,
                              const KernelSpec& spec, mx::StreamOrDevice s) {
  return upsample("pool_transpose3d", x, target, spec, {}, s);
}

SparseTensor trilinear_upsample3d(const SparseTensor& x, const std::optional<TargetCoords>& target,
                                  const Triple& stride, mx::StreamOrDevice s) {
  constexpr const char* kOperation = "trilinear_upsample3d";
  Triple size, padding;
  for (size_t a = 0; a < 3; ++a) {
    if (stride[a] < 1 || stride[a] > 64)
      fail(kOperation, "stride must be in 1..64, got " + triple_text(stride));
    size[a] = 2 * stride[a] - 1;
    padding[a] = stride[a] - 1;
  }
  std::vector<float> weights;
  const auto along = [&](size_t axis, int64_t i) {
    return 1.0 -
           std::fabs(static_cast<double>(i - padding[axis])) / static_cast<double>(stride[axis]);
  };
  for (int64_t i = 0; i < size[0]; ++i)
    for (int64_t j = 0; j < size[1]; ++j)
      for (int64_t k = 0; k < size[2]; ++k)
        weights.push_back(static_cast<float>(along(0, i) * along(1, j) * along(2, k)));
  try {
    return upsample(kOperation, x, target, KernelSpec(size, stride, padding, {1, 1, 1}), weights,
                    s);
  } catch (const std::invalid_argument& e) {
    const std::string text = e.what();  // "[KernelSpec] ...": the user called this
    if (!text.starts_with("[KernelSpec]")) throw;
    fail(kOperation,
         "stride " + triple_text(stride) + " is too large:" + text.substr(text.find(']') + 1));
  }
}

mx::array global_pool(const SparseTensor& x, Reduction mode,
                      const std::optional<int64_t>& batch_size, mx::StreamOrDevice s,
                      const std::string& caller) {
  check_tensor(caller, x, s);
  const RowGroups::Ptr groups = batch_groups(x, batch_items(caller, x, batch_size));
  if (mode == Reduction::max) {
    const cpu::Segments& segments = groups->segments();
    for (int64_t b = 0; b < segments.n; ++b)
      if (segments.offsets[b] == segments.offsets[b + 1])
        fail(caller, "max has no value for empty batches; batch " + std::to_string(b) + " of " +
                         std::to_string(segments.n) + " has no rows");
  }
  return reduce_rows(x.feats(), groups, mode, s);
}

SparseTensor broadcast_add(const SparseTensor& x, const mx::array& per_batch,
                           mx::StreamOrDevice s) {
  return x.with_feats(mx::add(x.feats(), on_rows("broadcast_add", x, per_batch, true, s), s));
}

SparseTensor broadcast_mul(const SparseTensor& x, const mx::array& per_batch,
                           mx::StreamOrDevice s) {
  return x.with_feats(mx::multiply(x.feats(), on_rows("broadcast_mul", x, per_batch, true, s), s));
}

SparseTensor broadcast_cat(const SparseTensor& x, const mx::array& per_batch,
                           mx::StreamOrDevice s) {
  return x.with_feats(
      join_columns({x.feats(), on_rows("broadcast_cat", x, per_batch, false, s)}, s));
}

}  // namespace lattice
