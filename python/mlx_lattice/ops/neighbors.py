"""Neighbors: the k nearest rows, or all within a radius; docs/ops/neighbors.md."""

from typing import Any

import mlx.core as mx

from .. import _ext
from .._ext import NeighborRelation, gather_neighbor_features, knn_relation, radius_relation
from ..core._older_names import active

__all__ = [
    "build_knn_relation",
    "build_radius_relation",
    "gather_neighbor_features",
    "knn_relation",
    "radius_relation",
]


def build_knn_relation(
    source_coords: mx.array,
    query_coords: mx.array | None = None,
    *,
    k: int,
    source_active_rows: mx.array | None = None,
    query_active_rows: mx.array | None = None,
    **options: Any,
) -> NeighborRelation:
    """The k nearest source rows of each query.

    source_active_rows, query_active_rows: the prefix of rows that counts. Options: batch_indices,
    query_batch_indices, stream.
    """
    name = "build_knn_relation"
    source = active(source_coords, source_active_rows, name, "source_active_rows")
    query = active(query_coords, query_active_rows, name, "query_active_rows")
    return _ext.build_knn_relation(source, query, k=k, **options)


def build_radius_relation(
    source_coords: mx.array,
    query_coords: mx.array | None = None,
    *,
    radius: float,
    max_neighbors: int | None = None,
    source_active_rows: mx.array | None = None,
    query_active_rows: mx.array | None = None,
    **options: Any,
) -> NeighborRelation:
    """All source rows within the radius of each query; `max_neighbors` keeps the nearest.

    source_active_rows, query_active_rows: the prefix of rows that counts. Options: batch_indices,
    query_batch_indices, stream.
    """
    name = "build_radius_relation"
    source = active(source_coords, source_active_rows, name, "source_active_rows")
    query = active(query_coords, query_active_rows, name, "query_active_rows")
    return _ext.build_radius_relation(
        source, query, radius=radius, max_neighbors=max_neighbors, **options
    )
