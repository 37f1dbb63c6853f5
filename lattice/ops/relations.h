// Kernel relations: which input row meets which output row under which kernel offset.
//
//   out[o] = sum over edges (i, o, k) of feats[i] W[k]
//   gathering kinds (forward, target, submanifold):
//     in = out * stride + offset[k] - padding
//   scattering kinds (transposed, generative, target-transposed):
//     out = in * stride + offset[k] - padding
//
// build_* work on arrays and give a new object each time. The others work on tensors: the tensor's
// manager keeps the relation, and equal arguments give the same object. Relations are concrete; the
// table of routes decides who builds them (operation "relate").
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <variant>

#include "lattice/core/sparse_tensor.h"

namespace lattice {

Relation::Ptr build_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                    mx::StreamOrDevice s = {});
Relation::Ptr build_submanifold_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                                mx::StreamOrDevice s = {});
Relation::Ptr build_target_kernel_relation(const mx::array& coords, const mx::array& target,
                                           const KernelSpec& spec, mx::StreamOrDevice s = {});
Relation::Ptr build_transposed_kernel_relation(const mx::array& coords, const KernelSpec& spec,
                                               mx::StreamOrDevice s = {});
Relation::Ptr build_generative_relation(const mx::array& coords, const KernelSpec& spec,
                                        mx::StreamOrDevice s = {});
Relation::Ptr build_target_transposed_relation(const mx::array& coords, const mx::array& target,
                                               const KernelSpec& spec, mx::StreamOrDevice s = {});

// Output coordinates that a caller chose: those of a tensor, a key of the input's manager, or rows
// at the output stride.
using TargetCoords = std::variant<SparseTensor, CoordinateMapKey, mx::array>;
// The target as a key of x's manager. Throws std::invalid_argument when its stride is not `stride`
// or the key is foreign.
CoordinateMapKey target_key(const SparseTensor& x, const TargetCoords& target, const Triple& stride,
                            std::string_view operation);
// Stride of the output: x.stride * spec.stride, or for scattering kinds x.stride / spec.stride,
// which must divide.
Triple output_stride(const SparseTensor& x, const KernelSpec& spec, RelationKind kind,
                     std::string_view operation);
// Features on a key of x's manager: x's own identity where it is x's key; batch_counts are counted
// again where x has them.
SparseTensor result_on(const SparseTensor& x, const CoordinateMapKey& key, mx::array feats);

// The relation of a kind on x, kept by x's manager and built by the row of "relate" that is chosen.
// `operation` is what the user called.
Relation::Ptr relation_of(RelationKind kind, const SparseTensor& x, const KernelSpec& spec,
                          const std::optional<TargetCoords>& target, std::string_view operation,
                          mx::StreamOrDevice s = {});
// The same, one name per kind.
Relation::Ptr kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                              mx::StreamOrDevice s = {});
Relation::Ptr submanifold_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                          mx::StreamOrDevice s = {});
Relation::Ptr target_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                     const KernelSpec& spec, mx::StreamOrDevice s = {});
Relation::Ptr transposed_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice s = {});
Relation::Ptr generative_kernel_relation(const SparseTensor& x, const KernelSpec& spec,
                                         mx::StreamOrDevice s = {});
Relation::Ptr target_transposed_kernel_relation(const SparseTensor& x, const TargetCoords& target,
                                                const KernelSpec& spec, mx::StreamOrDevice s = {});

}  // namespace lattice
