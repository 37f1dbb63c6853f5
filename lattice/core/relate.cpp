// relate(): checks the arguments of each kind and calls its kernel.
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/core/relation.h"

namespace lattice {
namespace {

CoordinateSet made_set(cpu::MadeCoords&& made, mx::Dtype dtype, std::string_view operation) {
  return CoordinateSet(adopt(std::move(made.data), {static_cast<int>(made.rows), 4}, dtype),
                       operation);
}

void require(bool ok, std::string_view operation, const std::string& message) {
  if (!ok) fail(operation, message);
}

Relation::Fresh build(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                      const std::optional<CoordinateSet>& target, std::string_view operation) {
  const auto& index = in.unique_index(operation);
  const cpu::Kernel kernel = spec.kernel(!offsets_start_at_zero(kind));
  const auto finish = [&](cpu::RelationLists lists, const CoordinateSet& out) {
    return Relation::from_lists(kind, spec, std::move(lists), out);
  };
  cpu::MadeCoords made;
  switch (kind) {
    case RelationKind::target:
      return finish(cpu::relate_gather(index, target->index(), kernel), *target);
    case RelationKind::target_transposed:
      return finish(cpu::relate_scatter(index, target->index(), kernel), *target);
    case RelationKind::transposed:
    case RelationKind::generative: {
      cpu::RelationLists lists = cpu::relate_generated(in.span(), index, kernel, &made);
      return finish(std::move(lists), made_set(std::move(made), in.dtype(), operation));
    }
    default:
      break;
  }
  if (spec.stride == Triple{1, 1, 1} && spec.padding == Triple{0, 0, 0})
    return finish(cpu::relate_same(index, kernel), in);
  cpu::RelationLists lists = cpu::relate_downscaled(in.span(), index, kernel, &made);
  return finish(std::move(lists), made_set(std::move(made), in.dtype(), operation));
}

}  // namespace

void check_relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                  const std::optional<CoordinateSet>& target, std::string_view operation) {
  const bool wants_target = kind == RelationKind::target || kind == RelationKind::target_transposed;
  require(wants_target == target.has_value(), operation,
          wants_target ? "target coordinates are missing"
                       : "target coordinates are only for the target kinds");
  require(kind != RelationKind::custom, operation, "a custom relation is made from edges");
  if (target) check_same_dtype(in, *target, operation, "coords and target");
  if (kind == RelationKind::submanifold)
    require(spec.is_centered_submanifold(), operation,
            "a submanifold relation needs an odd kernel_size, stride 1 and padding 0, got " +
                spec.text());
  if (kind == RelationKind::generative)
    require(spec.padding == Triple{0, 0, 0} && spec.dilation == Triple{1, 1, 1}, operation,
            "a generative relation has padding 0 and dilation 1, got " + spec.text());
}

Relation::Fresh relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                       const std::optional<CoordinateSet>& target, std::string_view operation) {
  check_relate(kind, in, spec, target, operation);
  return named(operation, [&] { return build(kind, in, spec, target, operation); });
}

}  // namespace lattice
