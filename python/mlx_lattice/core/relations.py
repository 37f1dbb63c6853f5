"""Kernel relations, their views, their kernels and their builders."""

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
)
from ..compat import *  # noqa: F403
from ..ops.relations import (  # noqa: F401
    build_generative_relation,
    build_kernel_relation,
    build_submanifold_kernel_relation,
    build_target_kernel_relation,
    build_target_transposed_relation,
    build_transposed_kernel_relation,
    generative_kernel_relation,
    kernel_offsets,
    kernel_relation,
    submanifold_kernel_relation,
    target_kernel_relation,
    target_transposed_kernel_relation,
    transposed_kernel_relation,
)

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
