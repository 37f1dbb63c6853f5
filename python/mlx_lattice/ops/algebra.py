"""Tensors on different coordinates: joins, selection and collation; docs/ops/algebra.md.

Tensors that share a key need no join. Others are joined by value of their coordinates:

    join     rows of the result
    inner    those that both have, in the order of lhs
    left     those of lhs
    right    those of rhs
    outer    those of lhs, then those that only rhs has

A row that one side lacks has the value `lhs_fill` or `rhs_fill`. Both sides must have one stride,
one dtype and, except when channels are put side by side, one number of channels (ValueError).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import SparseAlignment, SparseTensor
    from ..core.types import ArrayLike, StreamOrDevice, Target, Triple

__all__ = [
    "align_sparse",
    "cat",
    "crop",
    "gather_aligned_features",
    "prune",
    "prune_mask",
    "reindex_sparse",
    "replace_feature",
    "rows_where",
    "sparse_add",
    "sparse_binary",
    "sparse_binary_op",
    "sparse_cat_aligned",
    "sparse_collate",
    "sparse_from_coordinates",
    "sparse_maximum",
    "sparse_minimum",
    "sparse_mul",
    "sparse_sub",
    "topk_rows",
]


def align_sparse(
    lhs: SparseTensor, rhs: SparseTensor, *, join: str = "inner", stream: StreamOrDevice = None
) -> SparseAlignment:
    """The rows of two tensors joined by coordinate: a `SparseAlignment`.

    >>> from mlx_lattice import ops, samples
    >>> x = samples.tensor()
    >>> ops.align_sparse(x, ops.prune(x, [0, 2]), join="left").rhs_rows.tolist()
    [0, -1, 1, -1, -1, -1]
    """
    return _ext.align_sparse(lhs, rhs, join, stream)


def gather_aligned_features(
    x: SparseTensor | ArrayLike,
    rows: ArrayLike,
    *,
    fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`feats[rows]` (M, C) of a tensor or an array; `fill` where a row is negative."""
    return _ext.gather_aligned_features(x, rows, fill, stream)


def reindex_sparse(
    input: SparseTensor, target: Target, *, fill: float = 0.0, stream: StreamOrDevice = None
) -> SparseTensor:
    """The features of `input` at the coordinates of `target`; `fill` where it has no row.

    The result has the identity and the batch counts of the target.
    """
    return _ext.reindex_sparse(input, target, fill, stream)


def sparse_binary(
    lhs: SparseTensor,
    rhs: SparseTensor,
    op: str,
    *,
    join: str = "outer",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`op(lhs, rhs)` on joined rows; op is add, sub, mul, maximum or minimum."""
    return _ext.sparse_binary(lhs, rhs, op, join, lhs_fill, rhs_fill, stream)


sparse_binary_op = sparse_binary  # the name of the older package


def sparse_add(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "outer",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`lhs + rhs` on the rows of either.

    >>> from mlx_lattice import ops, samples
    >>> x = samples.tensor()
    >>> ops.sparse_add(x, ops.prune(x, [0])).shape
    (6, 4)
    """
    return _ext.sparse_add(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def sparse_sub(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "outer",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`lhs - rhs` on the rows of either."""
    return _ext.sparse_sub(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def sparse_mul(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "inner",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`lhs * rhs` on the rows that both have."""
    return _ext.sparse_mul(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def sparse_maximum(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "inner",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`max(lhs, rhs)` on the rows that both have."""
    return _ext.sparse_maximum(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def sparse_minimum(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "inner",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`min(lhs, rhs)` on the rows that both have."""
    return _ext.sparse_minimum(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def cat(
    *tensors: SparseTensor | Sequence[SparseTensor],
    join: str = "inner",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Channels side by side on joined rows: `cat(a, b)` or `cat([a, b])`.

    ValueError for no tensor, and for tensors that differ in stride or dtype.
    """
    one = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    given = cast("Sequence[SparseTensor]", tensors[0] if one else tensors)
    return _ext.cat(given, join, stream)


def sparse_cat_aligned(
    lhs: SparseTensor,
    rhs: SparseTensor,
    *,
    join: str = "inner",
    lhs_fill: float = 0.0,
    rhs_fill: float = 0.0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Channels of two tensors side by side; a missing row is the fill."""
    return _ext.sparse_cat_aligned(lhs, rhs, join, lhs_fill, rhs_fill, stream)


def prune(x: SparseTensor, rows: ArrayLike, *, stream: StreamOrDevice = None) -> SparseTensor:
    """The rows with the given numbers, integers (M,), in the given order.

    ValueError for a number outside 0..N - 1.

    >>> from mlx_lattice import ops, samples
    >>> ops.prune(samples.tensor(), [2, 0]).coords.tolist()
    [[0, 1, 1, 0], [0, 0, 0, 0]]
    """
    return _ext.prune(x, rows, stream)


def prune_mask(x: SparseTensor, mask: ArrayLike, *, stream: StreamOrDevice = None) -> SparseTensor:
    """The rows where mask (N,) is true."""
    return _ext.prune_mask(x, mask, stream)


def crop(
    x: SparseTensor, *, min_coord: Triple, max_coord: Triple, stream: StreamOrDevice = None
) -> SparseTensor:
    """The rows with `min_coord <= (x, y, z) <= max_coord`, both included."""
    return _ext.crop(x, min_coord, max_coord, stream)


def rows_where(mask: ArrayLike) -> mx.array:
    """(K,) int32: the rows where mask (N,) is true, ascending. The mask is evaluated.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> ops.rows_where(mx.array([False, True, True])).tolist()
    [1, 2]
    """
    return _ext.rows_where(mask)


def replace_feature(
    x: SparseTensor, feats: ArrayLike, *, stream: StreamOrDevice = None
) -> SparseTensor:
    """Other features (N, D) on the coordinates of x; also `x.replace(feats=...)`."""
    return _ext.replace_feature(x, feats)


def topk_rows(
    x: SparseTensor, counts: ArrayLike, *, rho: float = 1.0, stream: StreamOrDevice = None
) -> mx.array:
    """Ascending rows: of batch item b the `floor(rho * counts[b])` with the largest channel 0.

    A decoder calls it to choose the rows that it keeps. Equal values: the lower row first.

    >>> from mlx_lattice import ops, samples
    >>> ops.topk_rows(samples.tensor(), [2, 1]).tolist()
    [3, 4, 5]
    """
    return _ext.topk_rows(x, counts, rho)


def sparse_from_coordinates(
    coords: ArrayLike,
    feats: ArrayLike,
    *,
    stride: Triple = 1,
    batch_counts: ArrayLike | None = None,
    duplicate_reduction: str = "none",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """A tensor of coordinates (N, 4) that may appear more than once.

    duplicate_reduction: what rows of equal coordinates become: "none" (they are a ValueError),
    "first", "sum", "mean" or "max". The first appearance gives the order.

    >>> from mlx_lattice import ops
    >>> coords, feats = [[0, 0, 0, 0], [0, 0, 0, 0]], [[1.0], [3.0]]
    >>> t = ops.sparse_from_coordinates(coords, feats, duplicate_reduction="mean")
    >>> t.feats.tolist()
    [[2.0]]
    """
    return _ext.sparse_from_coordinates(
        coords, feats, stride, batch_counts, duplicate_reduction, stream
    )


def sparse_collate(
    coords_list: Sequence[ArrayLike],
    feats_list: Sequence[ArrayLike],
    *,
    stride: Triple = 1,
    duplicate_reduction: str = "none",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Items of coordinates (n, 3) and features (n, C) as one batch; batch_counts are set.

    >>> from mlx_lattice import ops
    >>> two = ops.sparse_collate([[[0, 0, 0]], [[1, 2, 3]]], [[[1.0]], [[2.0]]])
    >>> two.coords.tolist(), two.batch_counts
    ([[0, 0, 0, 0], [1, 1, 2, 3]], (1, 1))
    """
    return _ext.sparse_collate(coords_list, feats_list, stride, duplicate_reduction, stream)
