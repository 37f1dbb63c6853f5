"""Compressed voxels, .mlat (docs/codec.md), as a point cloud.

The centers of the voxels with their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..core._checks import path as check_path
from .cloud import PointCloud

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import FilePath
    from ..ops import VoxelCloud


def read_mlat(path: FilePath) -> PointCloud:
    """PointCloud of a .mlat file: the centers of the voxels, in Morton order, and their values.

    Args:
        path: Path of the file.

    Returns:
        A `PointCloud`; positions are float32 if float32 resolves a hundredth of a voxel, else
        float64.

    Raises:
        ValueError: The file is not a whole .mlat file.
    """
    from ..ops import decode_points

    check_path("read_mlat", path)
    with open(path, "rb") as file:
        data = file.read()
    try:
        return centers(decode_points(data))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def centers(cloud: VoxelCloud) -> PointCloud:
    """The centers of the voxels of a decoded file, with their values."""
    cells = np.array(cloud.coords)[:, 1:]
    points = np.array(cloud.origin) + (cells + 0.5) * cloud.voxel_size
    fine = not len(points) or np.abs(points).max() * 2.0**-23 < cloud.voxel_size / 100
    return PointCloud(points.astype(np.float32) if fine else points, joined(cloud.attributes))


def joined(attributes: Mapping[str, mx.array | np.ndarray]) -> dict[str, np.ndarray]:
    """{column: NumPy array}: the reverse of what `compress` does with 64 bits."""
    columns = {}
    for name, given in attributes.items():
        values = np.array(given)
        stem, _, kind = name.rpartition(":")
        if stem and kind in ("f8.high", "i8.high", "u8.high"):
            low = attributes.get(f"{stem}:{kind[:2]}.low")
            if low is not None and values.dtype == np.uint32 and low.shape == values.shape:
                bits = values.astype(np.uint64) << 32 | np.array(low).astype(np.uint64)
                columns[stem] = bits.view(np.dtype(kind[:2]))
                continue
        if stem and kind in ("f8.low", "i8.low", "u8.low") and f"{name[:-3]}high" in attributes:
            continue
        columns[name] = values
    return columns
