"""Points to voxels and back; docs/ops/points.md."""

from typing import Any

import mlx.core as mx

from .._ext import (
    PointVoxelMap,
    SparseTensor,
    sparse_quantize,
    voxelize_with_quantization,
)
from .._ext import devoxelize as _devoxelize
from .._ext import voxelize as _voxelize
from ..core._older_names import active
from ..core.points import build_point_voxel_map, interpolate_point_features

__all__ = [
    "build_point_voxel_map",
    "devoxelize",
    "interpolate_point_features",
    "sparse_quantize",
    "voxelize",
    "voxelize_with_quantization",
]


def voxelize(
    points: mx.array,
    feats: mx.array,
    voxel_size: float | tuple[float, float, float] = 1.0,
    *,
    active_rows: mx.array | None = None,
    point_active_rows: mx.array | None = None,
    **options: Any,
) -> SparseTensor:
    """The sparse tensor of the features of points, reduced by mean, sum or max over each voxel.

    active_rows, also named point_active_rows: the prefix of points that counts. Options:
    batch_indices, origin, reduction, stride, stream.
    """
    rows = active_rows if point_active_rows is None else point_active_rows
    return _voxelize(points, feats, voxel_size, active_rows=rows, **options)


def devoxelize(
    points: mx.array,
    voxels: SparseTensor,
    voxel_size: float | tuple[float, float, float] = 1.0,
    *,
    point_active_rows: mx.array | None = None,
    point_voxel_map: PointVoxelMap | None = None,
    **options: Any,
) -> mx.array:
    """Features of the voxels at the points, (P, C), by linear or nearest interpolation.

    point_active_rows: the prefix of points that counts. point_voxel_map: the map that
    `build_point_voxel_map` made of these points and voxels, used instead of a new one. Options:
    batch_indices, origin, interpolation, stream.
    """
    name = "devoxelize"
    if point_voxel_map is not None:
        if not isinstance(voxels, SparseTensor) or not isinstance(point_voxel_map, PointVoxelMap):
            raise TypeError(
                "[devoxelize] voxels must be a SparseTensor and point_voxel_map a PointVoxelMap, "
                f"found a {type(voxels).__name__} and a {type(point_voxel_map).__name__}"
            )
        count = len(active(points, point_active_rows, name, "point_active_rows"))
        mapped = point_voxel_map.rows.shape[0]
        if mapped != count:
            raise ValueError(
                f"[devoxelize] point_voxel_map must be that of the {count} points, found one of "
                f"{mapped}"
            )
        return interpolate_point_features(
            voxels.feats, point_voxel_map, stream=options.get("stream")
        )
    if options.get("batch_indices") is not None:
        options["batch_indices"] = active(
            options["batch_indices"], point_active_rows, name, "point_active_rows"
        )
    points = active(points, point_active_rows, name, "point_active_rows")
    return _devoxelize(points, voxels, voxel_size, **options)
