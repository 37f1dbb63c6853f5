"""Builders of kernel relations: build_* on arrays, the others on tensors.

The manager of the tensor caches the relations of the latter.
"""

from ..core.relations import (
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

__all__ = [
    "build_generative_relation",
    "build_kernel_relation",
    "build_submanifold_kernel_relation",
    "build_target_kernel_relation",
    "build_target_transposed_relation",
    "build_transposed_kernel_relation",
    "generative_kernel_relation",
    "kernel_offsets",
    "kernel_relation",
    "submanifold_kernel_relation",
    "target_kernel_relation",
    "target_transposed_kernel_relation",
    "transposed_kernel_relation",
]
