"""Names that users of the paper's own code know, for what is called otherwise here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._ext import grid_downsample, radius_scaler, voxel_tap
from .geometry import PointSet
from .layers import FullCoverConv3d, GenerativeConv3d, PartitionConv3d, PointConv3d

if TYPE_CHECKING:
    import mlx.core as mx

__all__ = [
    "FullCoverConv",
    "GenerativeConv",
    "GenerativePointConv3d",
    "PartitionConv",
    "build_triplets",
    "conv_with_stride",
    "conv_with_stride_disjoint",
    "conv_with_stride_full_cover",
    "grid_sample_filter",
    "radius_scaler_for_kernel_size",
    "voxelize_3d",
]

FullCoverConv, PartitionConv = FullCoverConv3d, PartitionConv3d
GenerativeConv = GenerativePointConv3d = GenerativeConv3d
grid_sample_filter = grid_downsample
radius_scaler_for_kernel_size = radius_scaler
voxelize_3d = voxel_tap


def conv_with_stride(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 1, rfs: float | None = None
) -> tuple[mx.array, PointSet]:
    """conv(x, points, stride, rfs)"""
    return conv(x, points, stride, rfs)


def conv_with_stride_disjoint(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 2
) -> tuple[mx.array, PointSet]:
    """A PointConv3d on a partition: each point belongs to one cell of stride * grid."""
    target, book = PointSet.of(points).partition(stride, conv._size)
    return conv._run(x, book), target


def conv_with_stride_full_cover(
    conv: PointConv3d, x: mx.array, points: PointSet, stride: int = 2, margin: float = 0.01
) -> tuple[mx.array, PointSet]:
    """A PointConv3d on targets so that every point lies near one, without clamped offsets."""
    target, book = PointSet.of(points).full_cover(stride, conv._size, margin)
    return conv._run(x, book), target


def build_triplets(
    source: PointSet, target: PointSet | None = None, kernel_size: int = 3, **options: Any
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """(i, j, k, seg_offs) of the rulebook from source to target, ordered by (k, i, j)."""
    source = PointSet.of(source)
    return source.rulebook(
        None if target is None else PointSet.of(target), kernel_size, **options
    ).triplets()
