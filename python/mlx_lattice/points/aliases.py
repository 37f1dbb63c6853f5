"""Names that users of the paper's own code know, for what is called otherwise here."""

from .._ext import grid_downsample, radius_scaler, voxel_tap
from .geometry import PointSet

__all__ = ["build_triplets", "conv_with_stride", "grid_sample_filter", "radius_scaler_for_kernel_size", "voxelize_3d"]

grid_sample_filter = grid_downsample
radius_scaler_for_kernel_size = radius_scaler
voxelize_3d = voxel_tap


def conv_with_stride(conv, x, points, stride=1, rfs=None):
    """conv(x, points, stride, rfs)"""
    return conv(x, points, stride, rfs)


def build_triplets(source, target=None, kernel_size=3, **options):
    """(i, j, k, seg_offs) of the rulebook from source to target, ordered by (k, i, j)."""
    source = PointSet.of(source)
    return source.rulebook(None if target is None else PointSet.of(target), kernel_size, **options).triplets()
