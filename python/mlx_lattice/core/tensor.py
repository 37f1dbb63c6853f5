"""Sparse tensors and the names of their coordinates."""

from .._ext import (
    CoordinateManager,
    CoordinateMapKey,
    GeometryPlan,
    SparseTensor,
    SparseTensorComponents,
)

__all__ = [
    "CoordinateManager",
    "CoordinateMapKey",
    "GeometryPlan",
    "SparseTensor",
    "SparseTensorComponents",
]
