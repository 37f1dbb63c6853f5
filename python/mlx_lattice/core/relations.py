"""Kernel relations, their views, the kernels they are made for, and their builders."""

from .. import _ext
from .._ext import (  # noqa: F401
    Coverage,
    EdgeCsr,
    Edges,
    ImplicitGemm,
    KernelRelation,
    KernelSpec,
    NeighborEdges,
    NeighborRelation,
    SortedImplicitGemm,
    generative_kernel_relation,
    kernel_offsets,
    kernel_relation,
    submanifold_kernel_relation,
    target_kernel_relation,
    target_transposed_kernel_relation,
    transposed_kernel_relation,
)
from ._older_names import (  # noqa: F401
    RelationCSRView,
    RelationEdges,
    RelationImplicitGemmView,
    RelationKind,
    RelationSortedImplicitGemmView,
    RelationView,
    SparseRelationContract,
    Triple,
    triple,
    with_active_rows,
)

build_generative_relation = with_active_rows(_ext.build_generative_relation)
build_kernel_relation = with_active_rows(_ext.build_kernel_relation)
build_submanifold_kernel_relation = with_active_rows(_ext.build_submanifold_kernel_relation)
build_target_kernel_relation = with_active_rows(_ext.build_target_kernel_relation)
build_target_transposed_relation = with_active_rows(_ext.build_target_transposed_relation)
build_transposed_kernel_relation = with_active_rows(_ext.build_transposed_kernel_relation)

# The other names are those of the older package; they are the same objects as elsewhere.
__all__ = [
    "Coverage",
    "EdgeCsr",
    "Edges",
    "ImplicitGemm",
    "KernelRelation",
    "KernelSpec",
    "SortedImplicitGemm",
]
