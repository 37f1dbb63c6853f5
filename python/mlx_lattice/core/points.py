"""What operations on points return, and the map from voxels to points."""

from typing import Any

import mlx.core as mx

from .. import _ext
from .._ext import PointVoxelMap, SparseQuantization, interpolate_point_features  # noqa: F401
from ._older_names import active

# The other names are those of the older package; they are the same objects as elsewhere.
__all__ = [
    "PointVoxelMap",
    "SparseQuantization",
]


def build_point_voxel_map(
    points: mx.array,
    voxel_coords: mx.array,
    voxel_active_rows: mx.array | None = None,
    voxel_size: float | tuple[float, float, float] = 1.0,
    *,
    point_active_rows: mx.array | None = None,
    **options: Any,
) -> PointVoxelMap:
    """Rows and weights of the voxels around each point: PointVoxelMap.

    point_active_rows: the prefix of points that counts. Options: batch_indices, origin,
    interpolation ("linear" or "nearest"), stream.
    """
    name = "build_point_voxel_map"
    if options.get("batch_indices") is not None:
        options["batch_indices"] = active(
            options["batch_indices"], point_active_rows, name, "point_active_rows"
        )
    points = active(points, point_active_rows, name, "point_active_rows")
    return _ext.build_point_voxel_map(
        points, voxel_coords, voxel_active_rows, voxel_size, **options
    )
