"""Kernel relations, their views, and the kernels they are made for."""

from .._ext import (
    Coverage,
    EdgeCsr,
    Edges,
    ImplicitGemm,
    KernelRelation,
    KernelSpec,
    SortedImplicitGemm,
)

__all__ = [
    "Coverage",
    "EdgeCsr",
    "Edges",
    "ImplicitGemm",
    "KernelRelation",
    "KernelSpec",
    "SortedImplicitGemm",
]
