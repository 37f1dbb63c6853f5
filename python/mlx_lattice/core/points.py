"""The results of operations on points."""

from .._ext import PointVoxelMap, SparseQuantization
from ..ops.points import build_point_voxel_map, interpolate_point_features  # noqa: F401

# The functions are shown here for the older package; they are those of `ops`.
__all__ = ["PointVoxelMap", "SparseQuantization"]
