"""Samples, normals and graphs of points; docs/ops/surface.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike, Numbers

__all__ = [
    "estimate_normals",
    "farthest_point_sample",
    "feature_graph",
    "knn_rows",
    "sample_centers",
]


def farthest_point_sample(points: ArrayLike, count: int, *, start: int = 0) -> mx.array:
    """(count,) int32 rows of points (N, 3): row `start`, then each farthest from all before it.

    ValueError unless 1 <= count <= N and 0 <= start < N.

    >>> from mlx_lattice import ops
    >>> ops.farthest_point_sample([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]], 2).tolist()
    [0, 2]
    """
    return _ext.farthest_point_sample(points, count, start)


def estimate_normals(
    points: ArrayLike, *, k: int = 16, viewpoint: Numbers = 0.0
) -> tuple[mx.array, mx.array]:
    """(normals (N, 3), curvature (N,)), float32, from the k nearest points of each.

    The normal is the direction of least spread and faces the viewpoint; curvature is the share of
    the least spread, 0 on a plane.

    >>> from mlx_lattice import ops
    >>> floor = [[x, y, -1.0] for x in range(4) for y in range(4)]
    >>> normals, curvature = ops.estimate_normals(floor, k=5)
    >>> round(normals[0, 2].item(), 3)
    1.0
    """
    return _ext.estimate_normals(points, k, viewpoint)


def knn_rows(
    feats: ArrayLike, k: int, *, queries: ArrayLike | None = None
) -> tuple[mx.array, mx.array]:
    """(rows (M, k) int32, squared distances (M, k)) of the k nearest rows of feats (N, C), any C.

    Without queries (M, C) each row is a query and finds itself first. ValueError unless 1 <= k <=
    N.

    >>> from mlx_lattice import ops
    >>> rows, distances = ops.knn_rows([[0.0, 0.0], [3.0, 4.0]], 2)
    >>> rows.tolist(), distances.tolist()
    ([[0, 1], [1, 0]], [[0.0, 25.0], [0.0, 25.0]])
    """
    return _ext.knn_rows(feats, k, queries)


def feature_graph(x: ArrayLike, k: int, lengths: ArrayLike) -> mx.array:
    """(T, k) int32: for each row of x (T, C) the k nearest rows of its own cloud, itself first.

    lengths (B,) are the rows of each cloud. A cloud of fewer than k rows repeats the first
    neighbor. ValueError unless 1 <= k <= 65,536 and the lengths sum to T.

    >>> from mlx_lattice import ops
    >>> ops.feature_graph([[0.0], [1.0], [5.0]], 2, [2, 1]).tolist()
    [[0, 1], [1, 0], [2, 2]]
    """
    return _ext.feature_graph(x, k, lengths)


def sample_centers(
    positions: ArrayLike, lengths: ArrayLike, share: float
) -> tuple[mx.array, mx.array]:
    """(rows (M,), counts (B,)) int32: farthest points of each cloud of positions (T, 3).

    A cloud of n points gives round(share * n) of them, at least one if it has any.

    >>> from mlx_lattice import ops
    >>> rows, counts = ops.sample_centers([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]], [3], 0.5)
    >>> rows.tolist(), counts.tolist()
    ([0, 2], [2])
    """
    return _ext.sample_centers(positions, lengths, share)
