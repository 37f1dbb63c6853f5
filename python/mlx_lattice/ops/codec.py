"""Voxels and their values as compressed bytes; docs/ops/codec.md, file format docs/codec.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .. import _ext
from .._ext import VoxelCloud

if TYPE_CHECKING:
    from ..core.types import ArrayLike, Numbers, StreamOrDevice

__all__ = ["VoxelCloud", "decode_points", "encode_points"]


def encode_points(
    coords: ArrayLike,
    attributes: Mapping[str, ArrayLike] | None = None,
    *,
    voxel_size: float = 1.0,
    origin: Numbers = 0.0,
    model: str = "octree",
    fast: bool = False,
    sensor: Numbers = 0.0,
    stream: StreamOrDevice = None,
    on_progress: Callable[[float], object] | None = None,
) -> bytes:
    """Distinct int32 voxels (N, 4) and named values (N,) or (N, C) as one compressed file.

    Lossless. voxel_size and origin are stored and come back. model "octree" suits every cloud,
    "lidar" makes sweeps of spinning LiDARs smaller, "auto" tries both and keeps the smaller file.
    `fast` makes "lidar" five times as fast and its files larger. sensor is where the scanner
    stood, in the units of the points. A voxel that appears twice, and values with another number of
    rows, are a ValueError. on_progress is called now and then with the share
    that is done, 0..1; what it raises ends the work.

    >>> from mlx_lattice import ops
    >>> data = ops.encode_points([[0, 1, 2, 3]], {"label": [7]}, voxel_size=0.1)
    >>> cloud = ops.decode_points(data)
    >>> cloud.coords.tolist(), cloud.attributes["label"].tolist(), cloud.voxel_size
    ([[0, 1, 2, 3]], [7], 0.1)
    """
    given = {} if attributes is None else attributes
    return _ext.encode_points(
        coords, given, voxel_size, origin, model, fast, sensor, stream, on_progress
    )


def decode_points(
    data: bytes,
    *,
    stream: StreamOrDevice = None,
    on_progress: Callable[[float], object] | None = None,
) -> VoxelCloud:
    """The `VoxelCloud` of `encode_points`, with voxels in Morton order.

    Bytes that are truncated, damaged or of another kind are a ValueError. on_progress is called now
    and then with the share that is done, 0..1; what it raises ends the work.
    """
    return _ext.decode_points(data, stream, on_progress)
