"""Reductions over segments of rows, which `mlx_lattice.points` shows; docs/ops/segments.md.

x has rows on axis 0; the other axes are kept. operation is "sum", "mean", "max" or "min". A segment
without rows is 0 for sum and mean, -inf for max, inf for min, or `empty_value`. ties says how equal
maxima share the gradient: "split", "first" or "all". Lengths that do not sum to the number of rows
and indices outside 0..n - 1 are a ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from ..core.types import ArrayLike, StreamOrDevice


def segment_reduce(
    x: ArrayLike,
    lengths: ArrayLike,
    operation: str = "sum",
    *,
    ties: str = "split",
    empty_value: float | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """The reduction over each segment; segments follow each other with these lengths (B,).

    >>> from mlx_lattice import points
    >>> points.segment_reduce([[1.0], [2.0], [4.0]], [2, 1], "max").tolist()
    [[2.0], [4.0]]
    """
    return _ext.segment_reduce(x, lengths, operation, ties, empty_value, stream)


def segment_reduce_offsets(
    x: ArrayLike,
    offsets: ArrayLike,
    operation: str = "sum",
    *,
    ties: str = "split",
    empty_value: float | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`segment_reduce` with the B + 1 borders of the segments instead of their lengths."""
    return _ext.segment_reduce_offsets(x, offsets, operation, ties, empty_value, stream)


def indexed_segment_reduce(
    x: ArrayLike,
    indices: ArrayLike,
    lengths: ArrayLike,
    operation: str = "sum",
    *,
    ties: str = "split",
    empty_value: float | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`segment_reduce` of the rows `x[indices]`, which are not copied; indices may repeat.

    >>> from mlx_lattice import points
    >>> points.indexed_segment_reduce([[1.0], [2.0], [4.0]], [0, 2, 1], [2, 1]).tolist()
    [[5.0], [2.0]]
    """
    return _ext.indexed_segment_reduce(x, indices, lengths, operation, ties, empty_value, stream)


def scatter_reduce(
    x: ArrayLike,
    ids: ArrayLike,
    n: int,
    operation: str = "sum",
    *,
    ties: str = "split",
    empty_value: float | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """The reduction over the rows r with ids[r] == i, in any order, for each i < n.

    >>> from mlx_lattice import points
    >>> points.scatter_reduce([[1.0], [2.0], [4.0]], [0, 1, 0], 2).tolist()
    [[5.0], [2.0]]
    """
    return _ext.scatter_reduce(x, ids, n, operation, ties, empty_value, stream)


def segment_expand(y: ArrayLike, lengths: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """Row s of y lengths[s] times: the adjoint of the sum of `segment_reduce`.

    >>> from mlx_lattice import points
    >>> points.segment_expand([[1.0], [2.0]], [2, 1]).tolist()
    [[1.0], [1.0], [2.0]]
    """
    return _ext.segment_expand(y, lengths, stream)


def segment_offsets(lengths: ArrayLike) -> mx.array:
    """(S + 1,) int32: where each segment begins, and the sum of the lengths.

    >>> from mlx_lattice import ops
    >>> ops.segment_offsets([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    return _ext.segment_offsets(lengths)


def segment_indices(lengths: ArrayLike) -> mx.array:
    """(N,) int32: the segment of each row.

    >>> from mlx_lattice import ops
    >>> ops.segment_indices([2, 0, 1]).tolist()
    [0, 0, 2]
    """
    return _ext.segment_indices(lengths)


def segment_softmax(x: ArrayLike, lengths: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """The softmax over the rows of each segment, column by column: like x.

    >>> from mlx_lattice import points
    >>> points.segment_softmax([[1.0], [1.0], [4.0]], [2, 1]).tolist()
    [[0.5], [0.5], [1.0]]
    """
    return _ext.segment_softmax(x, lengths, stream)
