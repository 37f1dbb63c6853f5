#include "lattice/ops/relations.h"

#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/routes/geometry.h"

namespace lattice {

Relation::Ptr relation(RelationKind kind, const mx::array& coords, const KernelSpec& spec,
                       const std::optional<mx::array>& target, mx::StreamOrDevice s,
                       std::string_view operation) {
  std::optional<CoordinateSet> out;
  if (target) out.emplace(*target, operation);
  return relation_builder(s)(kind, CoordinateSet(coords, operation), spec, out, operation);
}

Triple output_stride(const SparseTensor& x, const KernelSpec& spec, RelationKind kind,
                     std::string_view operation) {
  return output_stride(x.stride(), spec.stride, kind, operation);
}

std::pair<RelationKind, KernelSpec> supported(RelationKind kind, const SparseTensor& x,
                                              const KernelSpec& spec, Support support,
                                              std::string_view operation) {
  if (support == Support::reached) {
    if (kind != RelationKind::forward && kind != RelationKind::transposed)
      fail(operation, "support \"reached\" is for strided and transposed kernels; a " +
                          std::string(kind_name(kind)) + " kernel has rows of its own");
    kind = kind == RelationKind::forward ? RelationKind::reached : RelationKind::reached_transposed;
  }
  KernelSpec made(spec.size, spec.stride, spec.padding, spec.dilation);
  if (is_reached(kind)) {
    made.order = spec.order;
    made.bounds = spec.bounds ? spec.bounds : x.bounds();
  } else if (spec.bounds) {
    fail(operation, "bounds are for support=\"reached\"; the rows of a floored support have none");
  }
  return {kind, made};
}

CoordinateMapKey target_key(const SparseTensor& x, const TargetCoords& target, const Triple& stride,
                            std::string_view operation) {
  const auto check_stride = [&](const Triple& found) {
    if (found != stride)
      fail(operation,
           "target must have stride " + triple_text(stride) + ", got " + triple_text(found));
  };
  if (const auto* tensor = std::get_if<SparseTensor>(&target)) {
    check_stride(tensor->stride());
    if (tensor->coord_manager() == x.coord_manager()) return tensor->coord_key();
    return x.coord_manager()->insert_set(tensor->coordinate_set(), stride);
  }
  if (const auto* key = std::get_if<CoordinateMapKey>(&target)) {
    if (!x.coord_manager()->owns(*key))
      fail(operation, "target key " + std::to_string(key->id) + " of manager " +
                          std::to_string(key->manager_id) +
                          " does not belong to the tensor's manager " +
                          std::to_string(x.coord_manager()->id()));
    check_stride(key->stride);
    return *key;
  }
  return x.coord_manager()->insert_coords(std::get<mx::array>(target), stride, std::nullopt,
                                          operation);
}

SparseTensor result_on(const SparseTensor& x, const CoordinateMapKey& key, mx::array feats) {
  if (key == x.coord_key()) return x.with_feats(std::move(feats));
  std::optional<BatchCounts> counts;
  if (x.batch_counts())
    counts =
        count_batches(x.coord_manager()->set(key), static_cast<int64_t>(x.batch_counts()->size()));
  return SparseTensor(x.coord_manager(), key, std::move(feats), std::move(counts));
}

Relation::Ptr relation(RelationKind kind, const SparseTensor& x, const KernelSpec& spec,
                       const std::optional<TargetCoords>& target, mx::StreamOrDevice s,
                       std::string_view operation) {
  std::optional<CoordinateMapKey> key;
  if (target) key = target_key(x, *target, output_stride(x, spec, kind, operation), operation);
  return relation_in(*x.coord_manager(), kind, x.coord_key(), key, spec, operation, s);
}

Relation::Ptr relation_in(CoordinateManager& manager, RelationKind kind, const CoordinateMapKey& in,
                          const std::optional<CoordinateMapKey>& target, const KernelSpec& spec,
                          std::string_view operation, mx::StreamOrDevice s) {
  return manager.relation(kind, in, target, spec, operation, relation_builder(s));
}

RelationBuilder relation_builder(mx::StreamOrDevice s) {
  return [s](RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
             const std::optional<CoordinateSet>& target, std::string_view operation) {
    check_relate(kind, in, spec, target, operation);
    return routes::run(routes::relate_rows(), {kind, in, spec, target, std::string(operation), s});
  };
}

}  // namespace lattice
