"""Assigns points to the cells of a grid in the float32 arithmetic of detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    from .._ext import PointVoxels
    from ..core.types import ArrayLike, Numbers

__all__ = ["point_voxels"]


def point_voxels(
    points: ArrayLike,
    low: Numbers,
    high: Numbers,
    size: Numbers,
    *,
    max_points: int = -1,
    max_voxels: int = -1,
) -> PointVoxels:
    """The voxels of a cloud (N, F) whose first columns are x, y, z.

    `cell = floor((p - low) / size)` in float32; a point counts if `0 <= cell < round((high - low) /
    size)` on every axis. The first point of a cell makes the next voxel. With limits ("hard"
    voxelization) a voxel keeps its first max_points points, and points of new cells are dropped
    when there are max_voxels; without limits ("dynamic") every point inside of the grid counts.

    Returns:
        A `PointVoxels`: `voxels` (V, max_points, F) with 0 in slots without a point, `mean` (V, F),
        `coords` (V, 3) as z, y, x, `counts` (V,), `owner` (N,), the voxel in whose cell a point
        lies, even if it was full, or -1, and how many points were dropped, by reason: `outside`,
        `full_voxel`, `full_grid`.

    Raises:
        ValueError: Another shape, a limit below 1, or a grid without cells.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import ops
        >>> points = mx.array([[0.1, 0.1, 0.1], [0.2, 0.1, 0.1], [1.5, 0.0, 0.0], [9.0, 0.0, 0.0]])
        >>> found = ops.point_voxels(points, (0, 0, 0), (2, 2, 2), 1.0, max_points=1)
        >>> found.coords.tolist(), found.full_voxel, found.outside
        ([[0, 0, 0], [0, 0, 1]], 1, 1)
    """
    return _ext.point_voxels(points, low, high, size, max_points, max_voxels)
