"""Distances between rows, which `mlx_lattice.points` shows; docs/ops/distance.md.

metric is "euclidean", "squared_euclidean" or "cosine" = 1 - <a, b> / max(|a| |b|, 1e-8), for pairs
also "chebyshev". No (N, M, C) array is made. Differentiable to any order; the gradient of a
euclidean distance is 0 where it is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike, StreamOrDevice


def indexed_distance(
    a: ArrayLike,
    b: ArrayLike,
    a_indices: ArrayLike | None = None,
    b_indices: ArrayLike | None = None,
    metric: str = "euclidean",
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """(N, M): the distances of all pairs of the rows `a[a_indices]` and `b[b_indices]`.

    >>> from mlx_lattice import points
    >>> points.indexed_distance([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]).tolist()
    [[5.0, 1.0]]
    """
    return _ext.indexed_distance(a, b, a_indices, b_indices, metric, stream)


def indexed_distance_blocked(
    a: ArrayLike,
    b: ArrayLike,
    block_size: int = 512,
    metric: str = "euclidean",
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`indexed_distance` whose gradient needs only block_size rows of the matrix at a time."""
    return _ext.indexed_distance_blocked(a, b, block_size, metric, stream)


def indexed_pair_distance(
    a: ArrayLike,
    a_indices: ArrayLike,
    b: ArrayLike,
    b_indices: ArrayLike,
    metric: str = "euclidean",
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """(T,): the distances of the pairs of rows `a[a_indices[t]]` and `b[b_indices[t]]`."""
    return _ext.indexed_pair_distance(a, a_indices, b, b_indices, metric, stream)
