"""What operations on points return."""

from .._ext import PointVoxelMap, SparseQuantization

__all__ = ["PointVoxelMap", "SparseQuantization"]
