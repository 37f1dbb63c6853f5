/// @file
/// Kernel relations, which say which input row meets which output row under which kernel offset.
///
///     out[o] = sum over edges (i, o, k) of feats[i] W[k]
///     gathering kinds (forward, target, submanifold):
///       in = out * stride + offset[k] - padding
///     scattering kinds (transposed, generative, target-transposed):
///       out = in * stride + offset[k] - padding
///
/// For arrays, relation() makes a new object each time. For tensors, the manager of the tensor
/// keeps the relation, and equal arguments give the same object. Relations are concrete; the table
/// of routes decides who builds them (operation "relate").
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <variant>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// Output coordinates that a caller chose: those of a tensor, a key of the input's manager, or rows
/// at the output stride.
using TargetCoords = std::variant<SparseTensor, CoordinateMapKey, mx::array>;
/// Which output cells exist where the caller gives none: the distinct floor(c / stride), or every
/// cell that a kernel reaches (docs/ops/relations.md). A reached kernel counts its offsets from 0,
/// so that padding is that of PyTorch and spconv.
enum class Support { floored, reached };
/// @cond internal
/// The kind and the specification of a call: `support` turns forward and transposed into the
/// reached kinds, whose bounds are x's own unless `spec` has some.
std::pair<RelationKind, KernelSpec> supported(RelationKind kind, const SparseTensor& x,
                                              const KernelSpec& spec, Support support,
                                              std::string_view operation);
/// The target as a key of x's manager. Throws std::invalid_argument when its stride is not `stride`
/// or the key is foreign.
CoordinateMapKey target_key(const SparseTensor& x, const TargetCoords& target, const Triple& stride,
                            std::string_view operation);
/// Stride of the output: x.stride * spec.stride, or for scattering kinds x.stride / spec.stride,
/// which must divide.
Triple output_stride(const SparseTensor& x, const KernelSpec& spec, RelationKind kind,
                     std::string_view operation);
/// Features on a key of x's manager: x's own identity where it is x's key; batch_counts are counted
/// again where x has them.
SparseTensor result_on(const SparseTensor& x, const CoordinateMapKey& key, mx::array feats);
/// @endcond

/// The relation of a kind between coords (N, 4) and their outputs. The kinds `target` and
/// `target_transposed` need `target`, the others take none. Messages begin with `operation`. Throws
/// std::invalid_argument, std::overflow_error.
LATTICE_API Relation::Ptr relation(RelationKind kind, const mx::array& coords,
                                   const KernelSpec& spec = {},
                                   const std::optional<mx::array>& target = std::nullopt,
                                   mx::StreamOrDevice s = {},
                                   std::string_view operation = "relation");
/// The same on the coordinates of x, kept by x's manager.
LATTICE_API Relation::Ptr relation(RelationKind kind, const SparseTensor& x,
                                   const KernelSpec& spec = {},
                                   const std::optional<TargetCoords>& target = std::nullopt,
                                   mx::StreamOrDevice s = {},
                                   std::string_view operation = "relation");

/// The same between two sets of a manager.
LATTICE_API Relation::Ptr relation_in(CoordinateManager& manager, RelationKind kind,
                                      const CoordinateMapKey& in,
                                      const std::optional<CoordinateMapKey>& target,
                                      const KernelSpec& spec, std::string_view operation,
                                      mx::StreamOrDevice s = {});

/// The function with which CoordinateManager::relation() and GeometryPlan::decode() build
/// relations. It takes the route that is chosen on this stream.
LATTICE_API RelationBuilder relation_builder(mx::StreamOrDevice s = {});

}  // namespace lattice
