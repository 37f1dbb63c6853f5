#include "lattice/ops/relations.h"

#include <stdexcept>

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
  const std::string head = "[" + std::string(operation) + "] ";
  const auto check_stride = [&](const Triple& found) {
    if (found != stride)
      throw std::invalid_argument(head + "target must have stride " + triple_text(stride) +
                                  ", got " + triple_text(found));
  };
  if (const auto* tensor = std::get_if<SparseTensor>(&target)) {
    check_stride(tensor->stride());
    if (tensor->coord_manager() == x.coord_manager()) return tensor->coord_key();
    return x.coord_manager()->insert_set(tensor->coordinate_set(), stride);
  }
  if (const auto* key = std::get_if<CoordinateMapKey>(&target)) {
    if (!x.coord_manager()->owns(*key))
      throw std::invalid_argument(head + "target key " + std::to_string(key->id) + " of manager " +
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

Relation::Ptr kernel_relation(const SparseTensor& x, const KernelSpec& spec, mx::StreamOrDevice) {
  return x.coord_manager()->kernel_relation(x.coord_key(), spec);
}
Relation::Ptr submanifold_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                          mx::StreamOrDevice) {
  return x.coord_manager()->submanifold_kernel_relation(x.coord_key(), spec);
}
Relation::Ptr target_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                     const KernelSpec& spec, mx::StreamOrDevice) {
  constexpr const char* kOperation = "target_kernel_relation";
  const Triple stride = output_stride(x, spec, RelationKind::target, kOperation);
  return x.coord_manager()->target_kernel_relation(x.coord_key(),
                                                   target_key(x, target, stride, kOperation), spec);
}
Relation::Ptr transposed_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice) {
  return x.coord_manager()->transposed_kernel_relation(x.coord_key(), spec);
}
Relation::Ptr generative_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice) {
  return x.coord_manager()->generative_relation(x.coord_key(), spec);
}
Relation::Ptr target_transposed_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                                const KernelSpec& spec, mx::StreamOrDevice) {
  constexpr const char* kOperation = "target_transposed_kernel_relation";
  const Triple stride = output_stride(x, spec, RelationKind::target_transposed, kOperation);
  return x.coord_manager()->target_transposed_relation(
      x.coord_key(), target_key(x, target, stride, kOperation), spec);
}

}  // namespace lattice
