"""One point per voxel of a cloud that is larger than memory, as `io.downsample` makes it in memory.

Cells become voxels one after the other. Then the voxels of all cells are brought into the order of
their first points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from .. import _ext, ops
from ..io.atomic_files import atomic_path
from ..io.cloud import PointCloud
from ..io.downsample import downsample
from ..io.las import write_las_pieces
from ..training.progress import Progress
from .buckets import At, Buckets
from .clouds import LAS, PIECE, CloudFile
from .manifest import Run
from .rows import head_of, to_rows


@dataclass(frozen=True)
class Made:
    """What `voxelize` says about its work."""

    points: int
    finite: int
    voxels: int
    most: int  # points of one voxel


def voxelize(
    files: Sequence[CloudFile],
    output: str,
    format: str,
    size: float,
    *,
    points: str = "mean",
    counts: bool = False,
    memory: int,
) -> Made:
    """Writes one point per voxel of the files, which count as one cloud.

    Raises:
        ValueError: A file is broken, or the files have different columns; the message names it.
    """
    run = Run(Path(f"{output}.tiles"))
    run.begin({})
    with run.locked():
        buckets = Buckets(run, files, lambda cloud, low: _voxels_of(cloud, low, size), memory)
        origin = np.floor(buckets.low / size) * size
        firsts: dict[At, np.ndarray] = {}
        most = 0
        with Progress("pass 2 of 2, voxels", buckets.finite, "points") as bar:
            for at, cloud, order in buckets.cells():
                made = downsample(cloud, size, points, origin)
                if counts:
                    made.cloud.columns["count"] = made.counts.astype(np.int32)
                rows = to_rows(made.cloud, "npy")
                rows.tofile(buckets.path(at, "voxels"))
                order[made.first].tofile(buckets.path(at, "first"))
                firsts[at] = np.memmap(buckets.path(at, "first"), np.int64, "r")
                most = max(most, int(made.counts.max()))
                _ext.release_memory()
                mx.clear_cache()
                bar.advance(len(cloud))
        voxels = sum(map(len, firsts.values()))
        if not voxels:
            raise ValueError(f"{files[0].path}: no points, so there is nothing to write")
        _write(output, format, voxels, _ordered(buckets, firsts, rows.dtype))
        run.remove()
    return Made(buckets.total, buckets.finite, voxels, most)


def _voxels_of(cloud: PointCloud, low: np.ndarray, size: float) -> np.ndarray:
    """(N, 3) voxels, by the arithmetic of `downsample`."""
    q = ops.sparse_quantize(cloud.less(np.floor(low / size) * size), size)
    return np.array(q.coords)[:, 1:][np.array(q.inverse_rows)]


def _ordered(
    buckets: Buckets, firsts: dict[At, np.ndarray], dtype: np.dtype
) -> Iterator[PointCloud]:
    """The voxels of all cells by their first points, some of them at a time."""
    places = list(firsts)
    at = np.zeros(len(places), np.int64)
    following = np.array([first[0] for first in firsts.values()])
    end = 0
    while (following < buckets.total).any():
        end = max(end + PIECE, int(following.min()) + 1)
        rows, order = [], []
        for i in np.flatnonzero(following < end):
            first = firsts[places[i]]
            stop = int(np.searchsorted(first, end))
            path = buckets.path(places[i], "voxels")
            offset = int(at[i]) * dtype.itemsize
            rows.append(np.fromfile(path, dtype, stop - int(at[i]), offset=offset))
            order.append(first[at[i] : stop])
            at[i] = stop
            following[i] = first[stop] if stop < len(first) else buckets.total
        made = np.concatenate(rows)[np.argsort(np.concatenate(order))]
        placed = np.stack([made[axis] for axis in "xyz"], axis=1)
        columns = {n: made[n] for n in (dtype.names or ())[3:]}
        yield PointCloud(placed, columns, dict(buckets.meta))


def _write(output: str, format: str, total: int, pieces: Iterator[PointCloud]) -> None:
    if format in LAS:
        write_las_pieces(output, pieces)
        return
    with atomic_path(output) as path, open(path, "wb") as file:
        for i, cloud in enumerate(pieces):
            rows = to_rows(cloud, format)
            if i == 0:
                file.write(head_of(format, rows.dtype, total))
            file.write(rows.tobytes())
