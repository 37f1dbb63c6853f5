"""One point per voxel of a cloud, with its columns, as the command `voxelize` makes it.

points           mean of the points of the voxel, center of the voxel, or its first point
color, intensity, float columns   mean, rounded back to the dtype; normals stay unit vectors
other integers   the most frequent value; the smallest in a tie
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx
import numpy as np

from .. import ops
from .cloud import PointCloud

if TYPE_CHECKING:
    from ..core import SparseQuantization

AVERAGED = ("color", "intensity")  # also when they are integers


class Voxels(NamedTuple):
    """What `downsample` makes: one point per voxel, in the order of their first points."""

    cloud: PointCloud
    counts: np.ndarray  # (V,) points of each voxel
    bad: int  # rows that are not finite and left out
    first: np.ndarray  # (V,) the row of the first point of each voxel


def downsample(
    cloud: PointCloud, size: float, points: str = "mean", origin: np.ndarray | None = None
) -> Voxels:
    """One point for each voxel of a cloud.

    The grid is aligned to multiples of `size`. Its origin, by default that below the low corner, is
    subtracted in float64, so that maps keep their precision.
    """
    if not (np.isfinite(size) and size > 0):
        raise ValueError(f"[voxelize] size: found {size}, expected a positive number")
    finite = cloud.finite()
    bad = int((~finite).sum())
    kept = np.flatnonzero(finite)
    if bad:
        cloud = cloud[finite]
    low, high = cloud.bounds() or (np.zeros(3), np.zeros(3))
    with np.errstate(over="ignore"):
        if not ((high - low) / size < 2**31 - 1).all():
            raise ValueError(
                f"[voxelize] size: found {size}, but the points span {np.max(high - low):g}, more "
                "than 2^31 voxels; give a larger size, or drop far points"
            )
    if origin is None:
        origin = np.floor(low / size) * size
    local = cloud.less(origin)
    q = ops.sparse_quantize(local, size)
    voxels, inverse, counts = np.array(q.coords), np.array(q.inverse_rows), np.array(q.counts)
    corners = voxels[:, 1:] * float(size)
    first = np.empty(len(counts), np.int64)
    first[inverse[::-1]] = np.arange(len(inverse))[::-1]
    if points == "mean":  # from the corner of the voxel: that is short, and float32 holds it
        inside = mx.array((local - corners[inverse]).astype(np.float32))
        placed = corners + np.array(_mean(q, inside), np.float64)
    elif points == "center":
        placed = corners + 0.5 * float(size)
    elif points == "first":
        placed = local[first].astype(np.float64)
    else:
        raise ValueError(f"[voxelize] points: found {points!r}, expected mean, center or first")
    columns = {
        name: _reduced(name, values, q, inverse, counts) for name, values in cloud.columns.items()
    }
    made = PointCloud((placed + origin).astype(cloud.points.dtype), columns, dict(cloud.meta))
    return Voxels(made, counts, bad, kept[first])


def _mean(q: SparseQuantization, feats: mx.array) -> mx.array:
    return ops.voxelize_with_quantization(q, feats, reduction="mean").feats


def _reduced(
    name: str, values: np.ndarray, q: SparseQuantization, inverse: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """One value of a column per voxel."""
    if values.dtype.kind != "f" and name not in AVERAGED:
        return _vote(values, inverse, len(counts))
    table = values if values.ndim == 2 else values[:, None]
    if table.dtype.itemsize <= (4 if table.dtype.kind == "f" else 2):  # float32 holds these
        mean = np.array(_mean(q, mx.array(table.astype(np.float32))), np.float64)
    else:
        mean = (
            np.stack([np.bincount(inverse, c, len(counts)) for c in table.T.astype(np.float64)], 1)
            / counts[:, None]
        )
    if name == "normal" and values.ndim == 2:
        length = np.linalg.norm(mean, axis=1, keepdims=True)
        mean = np.divide(mean, length, out=mean, where=length > 0)
    mean = mean.reshape(len(counts), *values.shape[1:])
    return (np.rint(mean) if values.dtype.kind in "iu" else mean).astype(values.dtype)


def _vote(values: np.ndarray, inverse: np.ndarray, n: int) -> np.ndarray:
    """The most frequent value of each voxel."""
    if values.ndim == 2:
        return np.stack([_vote(column, inverse, n) for column in values.T], axis=1)
    kinds, index = np.unique(values, return_inverse=True)
    pairs, count = np.unique(
        inverse.astype(np.int64) * max(len(kinds), 1) + index, return_counts=True
    )
    order = np.lexsort(
        (-pairs, count, pairs // max(len(kinds), 1))
    )  # the last of a voxel: most, then smallest value
    best = np.empty(n, np.int64)
    best[pairs[order] // max(len(kinds), 1)] = pairs[order] % max(len(kinds), 1)
    return kinds[best]
