"""One point per voxel of a cloud, with its columns: what the command `voxelize` does.

points           mean of the points of the voxel, center of the voxel, or its first point
color, intensity, float columns   mean, rounded back to the dtype; normals stay unit vectors
other integers   the most frequent value; the smallest in a tie
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from .. import ops
from ..io import PointCloud

AVERAGED = ("color", "intensity")  # also when they are integers


def downsample(cloud: PointCloud, size: Any, points: str = "mean") -> tuple[Any, ...]:
    """(PointCloud of the voxels, counts (V,), number of rows that are not finite and left out).

    Voxels come in the order of their first point. The grid is aligned to multiples of `size`. Its
    origin is subtracted in float64, so that maps keep their precision.
    """
    if not (np.isfinite(size) and size > 0):
        raise ValueError(f"[voxelize] size: found {size}, expected a positive number")
    finite = cloud.finite()
    bad = int((~finite).sum())
    if bad:
        cloud = cloud[finite]
    low, high = cloud.bounds() or (np.zeros(3), np.zeros(3))
    with np.errstate(over="ignore"):
        if not ((high - low) / size < 2**31 - 1).all():
            raise ValueError(
                f"[voxelize] size: found {size}, but the points span {np.max(high - low):g}, more "
                "than 2^31 voxels; give a larger size, or drop far points"
            )
    local, origin = cloud.local(np.floor(low / size) * size)
    q = ops.sparse_quantize(local, size)
    voxels, inverse, counts = np.array(q.coords), np.array(q.inverse_rows), np.array(q.counts)
    if points == "mean":
        placed = np.array(_mean(q, local), np.float64)
    elif points == "center":
        placed = (voxels[:, 1:] + 0.5) * float(size)
    elif points == "first":
        placed = np.array(local, np.float64)[np.unique(inverse, return_index=True)[1]]
    else:
        raise ValueError(f"[voxelize] points: found {points!r}, expected mean, center or first")
    columns = {
        name: _reduced(name, values, q, inverse, counts) for name, values in cloud.columns.items()
    }
    return (
        PointCloud((placed + origin).astype(cloud.points.dtype), columns, dict(cloud.meta)),
        counts,
        bad,
    )


def _mean(q: Any, feats: Any) -> Any:
    return ops.voxelize_with_quantization(q, feats, reduction="mean").feats


def _reduced(name: str, values: Any, q: Any, inverse: Any, counts: Any) -> Any:
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


def _vote(values: Any, inverse: Any, n: int) -> Any:
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
