"""Compressed voxels, .mlat (docs/codec.md), as a point cloud.

The centers of the voxels with their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import _ext
from ..core._checks import path as check_path
from ._native import read_native
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core.types import FilePath
    from ..ops import VoxelCloud


def read_mlat(
    path: FilePath, *, on_progress: Callable[[float], object] | None = None
) -> PointCloud:
    """PointCloud of a .mlat file: the centers of the voxels, in Morton order, and their values.

    Args:
        path: Path of the file.
        on_progress: Called now and then with the share that is done, 0..1; what it raises ends the
            work.

    Returns:
        A `PointCloud`; positions are float32 if float32 resolves a hundredth of a voxel, else
        float64.

    Raises:
        ValueError: The file is not a whole .mlat file.
    """
    check_path("read_mlat", path)
    return read_native(path, "mlat", on_progress)


def centers(cloud: VoxelCloud) -> PointCloud:
    """The centers of the voxels of a decoded file, with their values."""
    return PointCloud(*_ext.voxel_centers(cloud))
