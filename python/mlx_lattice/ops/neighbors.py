"""Neighbors: the k nearest rows, or all within a radius; docs/ops/neighbors.md.

Rows are coordinates (N, 4) or points (N, 3); neighbors belong to the same batch item. Distances are
squared, float32. The neighbors of a query are sorted by distance, then by source row, and contain
the query itself where it is a source. Points in NumPy's float64 are moved to the origin before they
become float32, so that positions on a map keep their millimeters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from .. import _ext
from ..compat import active

if TYPE_CHECKING:
    from .._ext import NeighborRelation, SparseTensor
    from ..core.types import ArrayLike, StreamOrDevice

    ActiveRows = int | mx.array | None

__all__ = [
    "build_knn_relation",
    "build_radius_relation",
    "gather_neighbor_features",
    "knn_graph",
    "knn_relation",
    "radius_relation",
]


def build_knn_relation(
    source_coords: ArrayLike,
    query_coords: ArrayLike | None = None,
    *,
    k: int,
    batch_indices: ArrayLike | None = None,
    query_batch_indices: ArrayLike | None = None,
    source_active_rows: ActiveRows = None,
    query_active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> NeighborRelation:
    """The k nearest source rows of each query; fewer where the batch item has fewer.

    Args:
        source_coords: Coordinates (N, 4) or points (N, 3).
        query_coords: The same kind; by default the sources.
        k: At least 1 (ValueError).
        batch_indices, query_batch_indices: The batch item of each point, integers (N,).
        source_active_rows, query_active_rows: The prefixes of rows that count.
        stream: Stream or device of MLX.

    Examples:
        >>> from mlx_lattice import ops
        >>> r = ops.build_knn_relation([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]], [[0.9, 0, 0]], k=2)
        >>> r.edges.source_rows.tolist(), [round(d, 2) for d in r.distances.tolist()]
        ([1, 0], [0.01, 0.81])
    """
    name = "build_knn_relation"
    source = active(source_coords, source_active_rows, name, "source_active_rows")
    query = active(query_coords, query_active_rows, name, "query_active_rows")
    source, query = _near_the_origin(source, query)
    return _ext.build_knn_relation(source, query, k, batch_indices, query_batch_indices, stream)


def knn_graph(
    points: ArrayLike, k: int, batch_indices: ArrayLike, *, stream: StreamOrDevice = None
) -> mx.array:
    """(N, k) int32: the k nearest points of each point (N, 3) in its own cloud, itself first.

    batch_indices (N,) are the clouds of the points. A cloud of fewer than k points repeats the
    first neighbor, so that a maximum over the neighbors stays right.

    >>> from mlx_lattice import ops
    >>> ops.knn_graph([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]], 2, [0, 0, 1]).tolist()
    [[0, 1], [1, 0], [2, 2]]
    """
    return _ext.knn_graph(points, k, batch_indices, stream)


def build_radius_relation(
    source_coords: ArrayLike,
    query_coords: ArrayLike | None = None,
    *,
    radius: float,
    max_neighbors: int | None = None,
    batch_indices: ArrayLike | None = None,
    query_batch_indices: ArrayLike | None = None,
    source_active_rows: ActiveRows = None,
    query_active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> NeighborRelation:
    """All source rows with `sqrt(d ** 2) <= radius` in float32 of each query.

    `max_neighbors` keeps the nearest, and `truncated` of the relation tells how many were cut off.
    A negative radius is a ValueError. The other arguments are those of `build_knn_relation`.
    """
    name = "build_radius_relation"
    source = active(source_coords, source_active_rows, name, "source_active_rows")
    query = active(query_coords, query_active_rows, name, "query_active_rows")
    source, query = _near_the_origin(source, query)
    return _ext.build_radius_relation(
        source, query, radius, max_neighbors, batch_indices, query_batch_indices, stream
    )


def knn_relation(
    source: SparseTensor,
    query: SparseTensor | None = None,
    *,
    k: int,
    stream: StreamOrDevice = None,
) -> NeighborRelation:
    """The k nearest coordinates of tensors of one stride; by default the queries are the source."""
    return _ext.knn_relation(source, query, k, stream)


def radius_relation(
    source: SparseTensor,
    query: SparseTensor | None = None,
    *,
    radius: float,
    max_neighbors: int | None = None,
    stream: StreamOrDevice = None,
) -> NeighborRelation:
    """All coordinates within a radius, which counts steps of the lattice of both tensors."""
    return _ext.radius_relation(source, query, radius, max_neighbors, stream)


def gather_neighbor_features(
    source: SparseTensor | ArrayLike, relation: NeighborRelation, *, stream: StreamOrDevice = None
) -> mx.array:
    """(E, C): the features of the source row of each edge; source is a tensor or (N, C)."""
    return _ext.gather_neighbor_features(source, relation, stream)


def _near_the_origin(
    source: ArrayLike, query: ArrayLike | None
) -> tuple[ArrayLike, ArrayLike | None]:
    """Float64 points of NumPy less the first of them, as float32; other rows as they are."""
    if type(source).__module__ != "numpy":
        return source, query
    import numpy as np

    points = np.asarray(source)
    if points.dtype != np.float64 or points.ndim != 2 or points.shape[1] != 3 or not len(points):
        return source, query
    if isinstance(query, mx.array) and query.dtype == mx.bfloat16:  # which NumPy does not know
        query = query.astype(mx.float32)
    asked = None if query is None else np.asarray(query)
    if asked is not None and (asked.dtype.kind != "f" or asked.ndim != 2 or asked.shape[1] != 3):
        return source, query  # the check of all rows reports what is wrong with it
    origin = points[0] if np.isfinite(points[0]).all() else np.zeros(3)
    with np.errstate(over="ignore", invalid="ignore"):
        near = (points - origin).astype(np.float32)
        return near, None if asked is None else (asked - origin).astype(np.float32)
