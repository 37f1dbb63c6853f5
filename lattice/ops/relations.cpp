#include "lattice/ops/relations.h"

#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/ops/geometry.h"

namespace lattice {
namespace {

Relation::Ptr build(RelationKind kind, const mx::array& coords, const KernelSpec& spec,
                    const mx::array* target, std::string_view operation, mx::StreamOrDevice s) {
  std::optional<CoordinateSet> out;
  if (target) out.emplace(*target, operation);
  return relate_on(kind, CoordinateSet(coords, operation), spec, out, operation, s);
}

}  // namespace

Relation::Ptr build_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                    mx::StreamOrDevice s) {
  return build(RelationKind::forward, coords, spec, nullptr, "build_kernel_relation", s);
}
Relation::Ptr build_submanifold_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                                mx::StreamOrDevice s) {
  return build(RelationKind::submanifold, coords, spec, nullptr,
               "build_submanifold_kernel_relation", s);
}
Relation::Ptr build_target_kernel_relation(const mx::array& coords, const mx::array& target,
                                           const KernelSpec& spec, mx::StreamOrDevice s) {
  return build(RelationKind::target, coords, spec, &target, "build_target_kernel_relation", s);
}
Relation::Ptr build_transposed_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                               mx::StreamOrDevice s) {
  return build(RelationKind::transposed, coords, spec, nullptr, "build_transposed_kernel_relation",
               s);
}
Relation::Ptr build_generative_relation(const mx::array& coords, const KernelSpec& spec,
                                        mx::StreamOrDevice s) {
  return build(RelationKind::generative, coords, spec, nullptr, "build_generative_relation", s);
}
Relation::Ptr build_target_transposed_relation(const mx::array& coords, const mx::array& target,
                                               const KernelSpec& spec, mx::StreamOrDevice s) {
  return build(RelationKind::target_transposed, coords, spec, &target,
               "build_target_transposed_relation", s);
}

Triple output_stride(const SparseTensor& x, const KernelSpec& spec, RelationKind kind,
                     std::string_view operation) {
  return output_stride(x.stride(), spec.stride, kind, operation);
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

Relation::Ptr relation_of(RelationKind kind, const SparseTensor& x, const KernelSpec& spec,
                          const std::optional<TargetCoords>& target, std::string_view operation,
                          mx::StreamOrDevice s) {
  std::optional<CoordinateMapKey> key;
  if (target) key = target_key(x, *target, output_stride(x, spec, kind, operation), operation);
  const auto by_route = [s](RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                            const std::optional<CoordinateSet>& target,
                            std::string_view operation) {
    return relate_on(kind, in, spec, target, operation, s);
  };
  return x.coord_manager()->relation(kind, x.coord_key(), key, spec, operation, by_route);
}

Relation::Ptr kernel_relation(const SparseTensor& x, const KernelSpec& spec, mx::StreamOrDevice s) {
  return relation_of(RelationKind::forward, x, spec, std::nullopt, "kernel_relation", s);
}
Relation::Ptr submanifold_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                          mx::StreamOrDevice s) {
  return relation_of(RelationKind::submanifold, x, spec, std::nullopt,
                     "submanifold_kernel_relation", s);
}
Relation::Ptr target_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                     const KernelSpec& spec, mx::StreamOrDevice s) {
  return relation_of(RelationKind::target, x, spec, target, "target_kernel_relation", s);
}
Relation::Ptr transposed_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice s) {
  return relation_of(RelationKind::transposed, x, spec, std::nullopt, "transposed_kernel_relation",
                     s);
}
Relation::Ptr generative_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice s) {
  return relation_of(RelationKind::generative, x, spec, std::nullopt, "generative_kernel_relation",
                     s);
}
Relation::Ptr target_transposed_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                                const KernelSpec& spec, mx::StreamOrDevice s) {
  return relation_of(RelationKind::target_transposed, x, spec, target,
                     "target_transposed_kernel_relation", s);
}

}  // namespace lattice
