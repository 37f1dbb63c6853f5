"""Layouts of attention: orders, patches, windows and blocks of voxels; docs/ops/layouts.md.

order is the name of a curve: "z" or "hilbert", or with x and y exchanged "z-trans" or
"hilbert-trans"; another name is a ValueError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import AttentionLayout, CoordinateOrdering, GridPooling, SparseTensor
    from ..core.types import ArrayLike, StreamOrDevice, Triple

__all__ = [
    "attention_patches",
    "attention_windows",
    "curve_codes",
    "curve_sort_coords",
    "grid_pool",
    "grid_pooling",
    "grid_unpool",
    "to_rows",
    "to_slots",
]


def curve_codes(coords: ArrayLike, order: str = "z", *, depth: int | None = None) -> mx.array:
    """int64 codes (N,) of coordinates (N, 4): the batch above the place along the curve.

    depth: bits per axis; by default as many as the coordinates need.

    >>> from mlx_lattice import ops
    >>> ops.curve_codes([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 1]]).tolist()
    [0, 4, 7]
    """
    return _ext.curve_codes(coords, order, depth)


def curve_sort_coords(
    coords: ArrayLike, order: str = "z", *, depth: int | None = None
) -> CoordinateOrdering:
    """The rows by batch, then along the curve, with the order and its inverse; stable."""
    return _ext.curve_sort_coords(coords, order, depth)


def attention_patches(
    x: SparseTensor | ArrayLike,
    size: int,
    order: str = "z",
    *,
    shrink: bool = False,
    depth: int | None = None,
) -> AttentionLayout:
    """Patches of `size` rows along a curve; the last patch of a cloud borrows rows before it.

    shrink: whether patches have at most as many rows as the smallest cloud of the batch.
    depth: bits per axis of the curve, as in `curve_codes`.
    """
    return _ext.attention_patches(x, size, order, shrink, depth)


def attention_windows(
    x: SparseTensor | ArrayLike, size: Triple, shift: Triple = 0
) -> AttentionLayout:
    """Windows of `size` cells per axis, 0 is the whole axis; `shift` moves their borders."""
    return _ext.attention_windows(x, size, shift)


@overload
def to_slots(
    feats: ArrayLike,
    layout: AttentionLayout,
    *,
    parts: None = None,
    stream: StreamOrDevice = None,
) -> mx.array: ...


@overload
def to_slots(
    feats: ArrayLike, layout: AttentionLayout, *, parts: int, stream: StreamOrDevice = None
) -> list[mx.array]: ...


def to_slots(
    feats: ArrayLike,
    layout: AttentionLayout,
    *,
    parts: int | None = None,
    stream: StreamOrDevice = None,
) -> mx.array | list[mx.array]:
    """The row of each slot: (N, C) -> (S, C); or `parts` arrays of C / parts columns each."""
    made = _ext.to_slots(feats, layout, 1 if parts is None else parts, stream)
    return made[0] if parts is None else made


def to_rows(
    feats: ArrayLike, layout: AttentionLayout, *, stream: StreamOrDevice = None
) -> mx.array:
    """The own slot of each row: (S, C) -> (N, C), which undoes `to_slots`."""
    return _ext.to_rows(feats, layout, stream)


def grid_pooling(
    x: SparseTensor, stride: int = 2, order: str = "z", *, depth: int | None = None
) -> GridPooling:
    """Blocks of `stride` cells per axis, sorted along a curve; the manager of x keeps them.

    order: a curve, with a power of two as stride; or "lexicographic" for rows by batch, x, y and z
        and any stride.
    depth: bits per axis of the curve, as in `curve_codes`.
    """
    return _ext.grid_pooling(x, stride, order, depth)


def grid_pool(
    x: SparseTensor, pooling: GridPooling, mode: str = "max", *, stream: StreamOrDevice = None
) -> SparseTensor:
    """The max, mean or sum of the rows of each block; the result has the stride of the blocks."""
    return _ext.grid_pool(x, pooling, mode, stream)


def grid_unpool(
    feats: ArrayLike, pooling: GridPooling, *, stream: StreamOrDevice = None
) -> mx.array:
    """For each fine row the row of its block: (M, C) -> (N, C)."""
    return _ext.grid_unpool(feats, pooling, stream)
