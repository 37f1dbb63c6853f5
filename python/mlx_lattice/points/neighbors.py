"""Nearest points of each query, and graphs of the k nearest points or features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from .. import ops
from ..core._checks import array, integer
from .batches import as_batch

if TYPE_CHECKING:
    from ..core.types import ArrayLike
    from .batches import Clouds

MOST_NEIGHBORS = 1 << 16  # each row gets k places


def nearest_neighbors(
    points: ArrayLike,
    queries: ArrayLike,
    lengths: ArrayLike | None = None,
    query_lengths: ArrayLike | None = None,
) -> tuple[mx.array, mx.array]:
    """(rows, distances) of the nearest point of each query in its own cloud, both (Q,).

    Ties go to the lowest row; in an empty cloud row and distance are -1 and inf.

    Args:
        points, queries: (N, 3) and (Q, 3).
        lengths, query_lengths: Points and queries of each cloud, (B,); by default one cloud.

    Raises:
        ValueError: An array has another shape, or lengths do not sum to its rows.

    Examples:
        >>> from mlx_lattice import points
        >>> rows, distances = points.nearest_neighbors(
        ...     [[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]], [[1.0, 0.0, 0.0], [3.5, 0.0, 0.0]]
        ... )
        >>> rows.tolist(), distances.tolist()
        ([0, 1], [1.0, 0.5])
    """
    points = array("nearest_neighbors", "points", points, "N", 3)
    queries = array("nearest_neighbors", "queries", queries, "Q", 3)
    clouds = [
        as_batch(p, lengths=n).indices for p, n in ((points, lengths), (queries, query_lengths))
    ]
    found = ops.build_knn_relation(
        points, queries, k=1, batch_indices=clouds[0], query_batch_indices=clouds[1]
    )
    count = queries.shape[0]
    if not found.edges.source_rows.size:
        return mx.full((count,), -1, dtype=mx.int32), mx.full((count,), float("inf"))
    some = found.query_counts > 0
    place = mx.where(some, found.row_offsets[:-1], 0)
    return mx.where(some, found.edges.source_rows[place], -1), mx.where(
        some, mx.sqrt(found.distances[place]), float("inf")
    )


def knn_graph(
    points: Clouds, k: int, lengths: ArrayLike | None = None
) -> tuple[mx.array, mx.array]:
    """(idx (T, k) int32, rel_pos (T, k, 3)): the k nearest points in the cloud of each point.

    Neighbors are ordered by (distance, row); the point itself comes first. In a cloud with fewer
    than k points the remaining places repeat the first neighbor, so that a maximum stays right.
    The array rel_pos = points[idx] - point is differentiable in the points.

    An array points (T, C) of another width is searched in its C dimensions, as EdgeConv does with
    features; rel_pos is then (T, k, C).

    Raises:
        ValueError: k is less than 1 or above 65,536, or lengths do not sum to the rows.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> idx, rel_pos = points.knn_graph(mx.array([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]]), 2)
        >>> idx.tolist(), rel_pos[:, 1, 0].tolist()
        ([[0, 1], [1, 0], [2, 1]], [1.0, -1.0, -4.0])
    """
    k = check_k(k)
    if isinstance(points, mx.array) and points.ndim == 2 and points.shape[1] != 3:
        idx = feature_graph(points, k, lengths)
        return idx, points[idx.reshape(-1)].reshape(*idx.shape, -1) - points[:, None]
    batch = as_batch(points, lengths=lengths)
    rows = batch.positions
    if not batch.total_points:
        return mx.zeros((0, k), dtype=mx.int32), mx.zeros((0, k, 3), dtype=rows.dtype)
    idx = ops.knn_graph(mx.stop_gradient(rows), k, batch.indices)
    return idx, rows[idx] - rows[:, None]


def check_k(k: object) -> int:
    """The number of neighbors of a graph."""
    return integer("knn_graph", "k", k, 1, MOST_NEIGHBORS)


def feature_graph(x: mx.array, k: int, lengths: ArrayLike | None = None) -> mx.array:
    """(T, k) int32: rows of the k nearest features in the cloud of each row, itself among them.

    x is (T, C) for any C. In a cloud of fewer than k rows the last places repeat the first
    neighbor.
    """
    k = check_k(k)
    x = mx.stop_gradient(array("knn_graph", "x", x, "T", "C"))
    if lengths is None:
        lengths = mx.array([x.shape[0]], dtype=mx.int32)
    return ops.feature_graph(x, k, lengths)
