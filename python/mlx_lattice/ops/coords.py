"""Coordinate sets by value: set operations, look-up, joins, curve orders, occupancy.

Coordinates are rows (batch, x, y, z), (N, 4) int32 or int64: an array, a `CoordinateSet`, a NumPy
array or nested lists. Arrays that are used together have one dtype. Another shape or dtype is a
ValueError; a coordinate that leaves its dtype is an OverflowError. docs/ops/coords.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from .. import _ext
from .._ext import CoordinateSet
from ..compat import active, active_rows_second

if TYPE_CHECKING:
    from .._ext import CoordinateOrdering, OccupancyExpansion, SparseAlignment, SparseOccupancy
    from ..core.types import ArrayLike, StreamOrDevice, Triple

__all__ = [
    "build_sparse_alignment",
    "child_coords_from_indices",
    "contains_coords",
    "difference_coords",
    "downsample_coords",
    "hilbert_order",
    "intersection_coords",
    "inverse_map",
    "lookup_coords",
    "morton_codes",
    "morton_order",
    "morton_sort_coords",
    "occupancy_downsample",
    "occupancy_expand",
    "union_coords",
]


def downsample_coords(
    coords: ArrayLike, stride: Triple = 2, *, stream: StreamOrDevice = None
) -> CoordinateSet:
    """The distinct `floor(c / stride)`, first seen first.

    >>> from mlx_lattice import ops
    >>> ops.downsample_coords([[0, -1, 0, 0], [0, 5, 0, 0], [0, 4, 1, 0]]).tolist()
    [[0, -1, 0, 0], [0, 2, 0, 0]]
    """
    return _ext.downsample_coords(coords, stride, stream)


def union_coords(lhs: ArrayLike, rhs: ArrayLike, *, stream: StreamOrDevice = None) -> CoordinateSet:
    """The distinct rows of either, first seen first, lhs before rhs."""
    return _ext.union_coords(lhs, rhs, stream)


def intersection_coords(
    lhs: ArrayLike, rhs: ArrayLike, *, stream: StreamOrDevice = None
) -> CoordinateSet:
    """The distinct rows of lhs that rhs has, first seen first."""
    return _ext.intersection_coords(lhs, rhs, stream)


def difference_coords(
    lhs: ArrayLike, rhs: ArrayLike, *, stream: StreamOrDevice = None
) -> CoordinateSet:
    """The distinct rows of lhs that rhs lacks, first seen first."""
    return _ext.difference_coords(lhs, rhs, stream)


def lookup_coords(
    coords: ArrayLike, queries: ArrayLike, *, stream: StreamOrDevice = None
) -> mx.array:
    """For each query the first row of coords that is equal, or -1: int32 (M,).

    >>> from mlx_lattice import ops, samples
    >>> ops.lookup_coords(samples.tensor().coords, [[0, 1, 1, 0], [0, 9, 9, 9]]).tolist()
    [2, -1]
    """
    return _ext.lookup_coords(coords, queries, stream)


def contains_coords(
    coords: ArrayLike, queries: ArrayLike, *, stream: StreamOrDevice = None
) -> mx.array:
    """Whether coords has each query: bool (M,)."""
    return _ext.contains_coords(coords, queries, stream)


def inverse_map(source: ArrayLike, target: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """For each target row the first source row that is equal, or -1: int32 (T,)."""
    return _ext.inverse_map(source, target, stream)


def build_sparse_alignment(
    lhs_coords: ArrayLike,
    lhs_active_rows: ArrayLike | None,
    rhs_coords: ArrayLike,
    rhs_active_rows: ArrayLike | None,
    *,
    join: str = "inner",
    stream: StreamOrDevice = None,
) -> SparseAlignment:
    """Two sets joined by value; `ops.algebra` says what the joins are.

    lhs_active_rows, rhs_active_rows: arrays (1,) with the number of leading rows that count, or
    None.

    >>> from mlx_lattice import ops
    >>> a, b = [[0, 0, 0, 0], [0, 5, 0, 0]], [[0, 5, 0, 0], [0, 7, 0, 0]]
    >>> found = ops.build_sparse_alignment(a, None, b, None, join="outer")
    >>> found.lhs_rows.tolist(), found.rhs_rows.tolist()
    ([0, 1, -1], [-1, 0, 1])
    """
    return _ext.build_sparse_alignment(
        lhs_coords, lhs_active_rows, rhs_coords, rhs_active_rows, join, stream
    )


def morton_codes(coords: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """int64 codes (N,): x is bit 0, y bit 1, z bit 2 of each triple of bits, batch from bit 60.

    OverflowError for values outside 0..2^20 - 1 and for batch > 7; `morton_order` has no limit.

    >>> from mlx_lattice import ops
    >>> ops.morton_codes([[0, 1, 0, 0], [0, 0, 1, 0]]).tolist()
    [1, 2]
    """
    return _ext.morton_codes(coords, stream)


def morton_order(coords: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """The rows by batch, then along the Morton curve, int32 (N,); stable, for all coordinates."""
    return _ext.morton_order(coords, stream)


def hilbert_order(coords: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """The rows by batch, then along the Hilbert curve, int32 (N,); stable, for all coordinates."""
    return _ext.hilbert_order(coords, stream)


def morton_sort_coords(coords: ArrayLike, *, stream: StreamOrDevice = None) -> CoordinateOrdering:
    """The rows in Morton order, with the order and its inverse.

    >>> from mlx_lattice import ops
    >>> found = ops.morton_sort_coords([[0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    >>> found.order.tolist(), found.inverse_rows.tolist()
    ([1, 2, 0], [2, 0, 1])
    """
    return _ext.morton_sort_coords(coords, stream)


@active_rows_second
def occupancy_downsample(
    coords: ArrayLike,
    *,
    active_rows: int | mx.array | None = None,
    stream: StreamOrDevice = None,
) -> SparseOccupancy:
    """Parents `floor(c / 2)`, first seen first, with the uint8 masks of their children.

    A child is bit `(x & 1) + 2 * (y & 1) + 4 * (z & 1)`. active_rows: the prefix that counts.

    >>> from mlx_lattice import ops
    >>> found = ops.occupancy_downsample([[0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 1]])
    >>> found.coords.tolist(), found.occupancy.tolist()
    ([[0, 0, 0, 0], [0, 1, 0, 0]], [3, 16])
    """
    rows = active(coords, active_rows, "occupancy_downsample")
    return _ext.occupancy_downsample(rows, stream)


def occupancy_expand(
    parent_coords: ArrayLike,
    occupancy: ArrayLike,
    active_rows: int | mx.array | None = None,
    *,
    stream: StreamOrDevice = None,
) -> OccupancyExpansion:
    """The children that the masks name, by parent, then by bit.

    Masks are uint8, or integers 0..255 (others are a ValueError). active_rows: the prefix of
    parents that counts.
    """
    name = "occupancy_expand"
    if isinstance(occupancy, mx.array) and mx.issubdtype(occupancy.dtype, mx.integer):
        if occupancy.dtype != mx.uint8 and occupancy.size:
            low, high = int(occupancy.min()), int(occupancy.max())
            if low < 0 or high > 255:
                raise ValueError(f"[{name}] occupancy must hold 0..255, found {low}..{high}")
        occupancy = occupancy.astype(mx.uint8)
    if active_rows is not None:
        parent_coords = active(parent_coords, active_rows, name)
        occupancy = active(occupancy, active_rows, name)
    return _ext.occupancy_expand(parent_coords, occupancy, stream)


def child_coords_from_indices(
    parent_coords: ArrayLike,
    parent_rows: ArrayLike,
    child_indices: ArrayLike | None = None,
    *,
    stream: StreamOrDevice = None,
) -> mx.array:
    """Child child_indices[m], 0..7, of parent row parent_rows[m]: coordinates (M, 4).

    With two arguments, child_coords_from_indices(parents, indices): row m is child indices[m] of
    parents[m].

    >>> from mlx_lattice import ops
    >>> ops.child_coords_from_indices([[0, 0, 0, 0], [0, 1, 0, 0]], [0, 1], [0, 7]).tolist()
    [[0, 0, 0, 0], [0, 3, 1, 1]]
    """
    if child_indices is None:
        if not isinstance(parent_coords, (mx.array, CoordinateSet)) or not parent_coords.shape:
            raise TypeError(
                "[child_coords_from_indices] parent_coords must be an array (N, 4), "
                f"found a {type(parent_coords).__name__}"
            )
        rows = mx.arange(parent_coords.shape[0], dtype=mx.int32)
        parent_rows, child_indices = rows, parent_rows
    return _ext.child_coords_from_indices(parent_coords, parent_rows, child_indices, stream)
