"""Points to voxels and back; docs/ops/points.md."""

from .._ext import (
    build_point_voxel_map,
    devoxelize,
    interpolate_point_features,
    sparse_quantize,
    voxelize,
    voxelize_with_quantization,
)

__all__ = [
    "build_point_voxel_map",
    "devoxelize",
    "interpolate_point_features",
    "sparse_quantize",
    "voxelize",
    "voxelize_with_quantization",
]
