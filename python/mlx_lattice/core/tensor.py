"""Sparse tensors and the names of their coordinates."""

from .._ext import CoordinateManager, CoordinateMapKey, SparseTensor, SparseTensorComponents

__all__ = ["CoordinateManager", "CoordinateMapKey", "SparseTensor", "SparseTensorComponents"]
