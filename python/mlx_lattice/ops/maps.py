"""Sparse maps in two dimensions; docs/ops/maps.md.

A map is a `SparseTensor` whose coordinates are (batch, 0, y, x). Its kernels have one cell along
the first axis, so that this axis costs nothing: it has no bits in the keys that are sorted, and no
offsets that are walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .. import _ext
from .._ext import SparseTensor
from ..core._checks import MOST, array, integer, listed, sparse_input, told
from .conv import conv3d, conv_transpose3d, inverse_conv3d, subm_conv3d
from .pool import max_pool3d, pool3d

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.types import ArrayLike, StreamOrDevice, Target

    Corner = tuple[int, int, int]

__all__ = [
    "conv2d",
    "conv_transpose2d",
    "from_map",
    "inverse_conv2d",
    "max_pool2d",
    "merge_levels",
    "planar",
    "pool2d",
    "subm_conv2d",
    "sum_over",
    "to_map",
]


def planar(
    coords: ArrayLike, feats: ArrayLike, *, shape: tuple[int, int] | None = None
) -> SparseTensor:
    """A sparse map of rows (batch, y, x) with features (N, C); shape (H, W) gives it bounds.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> x = ops.planar([[0, 1, 2], [0, 3, 3]], mx.ones((2, 4)), shape=(4, 4))
    >>> x.coords.tolist(), x.bounds
    ([[0, 0, 1, 2], [0, 0, 3, 3]], ((0, 0, 0), (1, 4, 4)))
    """
    rows = array("planar", "coords", coords)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"[planar] coords must have shape (N, 3): batch, y, x; got {rows.shape}")
    bounds = _bounds("planar", shape)
    rows = mx.concatenate([rows[:, :1], mx.zeros_like(rows[:, :1]), rows[:, 1:]], axis=1)
    x = SparseTensor(rows, array("planar", "feats", feats))
    return x if bounds is None else x.with_bounds(bounds)


def _pair(who: str, name: str, value: object, first: int) -> tuple[int, int, int]:
    """The numbers of three axes from one integer, or from two for y and x."""
    values = value if isinstance(value, (tuple, list)) else (value, value)
    if len(values) != 2:
        raise ValueError(f"[{who}] {name} must be one integer or two, y and x; found {told(value)}")
    y, x = (integer(who, name, v, least=-MOST) for v in values)
    return first, y, x


def _bounds(who: str, shape: object) -> tuple[Corner, Corner] | None:
    if shape is None:
        return None
    _, height, width = _pair(who, "shape", shape, 1)
    return (0, 0, 0), (1, height, width)


def _flat(name: str, weight: ArrayLike) -> mx.array:
    w = array(name, "weight", weight)
    if w.ndim != 4:
        raise ValueError(f"[{name}] weight must have shape (C_out, Ky, Kx, C_in), got {w.shape}")
    return w[:, None]


def _size(weight: mx.array) -> tuple[int, int, int]:
    return 1, weight.shape[2], weight.shape[3]


def _options(
    who: str, stride: Any, padding: Any, dilation: Any, shape: object, **more: Any
) -> dict[str, Any]:
    return {
        "stride": _pair(who, "stride", stride, 1),
        "padding": _pair(who, "padding", padding, 0),
        "dilation": _pair(who, "dilation", dilation, 1),
        "bounds": _bounds(who, shape),
        "support": "reached",
        **more,
    }


def conv2d(
    x: SparseTensor,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    shape: tuple[int, int] | None = None,
    groups: int = 1,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Convolution of a sparse map onto every cell that the kernel reaches, inside of its bounds.

    weight is (C_out, Ky, Kx, C_in). `ops.conv3d` with support="reached" says the rest; shape (H, W)
    are bounds of x that it does not have yet.
    """
    sparse_input("conv2d", x)
    w = _flat("conv2d", weight)
    options = _options("conv2d", stride, padding, dilation, shape, groups=groups, order=order)
    return conv3d(x, w, bias, kernel_size=_size(w), **options, stream=stream)


def subm_conv2d(
    x: SparseTensor,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Submanifold convolution of a sparse map; weight (C_out, Ky, Kx, C_in) with odd sizes.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> x = ops.planar([[0, 1, 2], [0, 1, 3]], mx.ones((2, 4)))
    >>> ops.subm_conv2d(x, mx.ones((1, 3, 3, 4))).feats.tolist()
    [[8.0], [8.0]]
    """
    sparse_input("subm_conv2d", x)
    w = _flat("subm_conv2d", weight)
    by = _pair("subm_conv2d", "dilation", dilation, 1)
    return subm_conv3d(x, w, bias, kernel_size=_size(w), dilation=by, groups=groups, stream=stream)


def conv_transpose2d(
    x: SparseTensor,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: int | tuple[int, int] = 2,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    shape: tuple[int, int] | None = None,
    groups: int = 1,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.conv_transpose3d` with support="reached" of a sparse map."""
    who = "conv_transpose2d"
    sparse_input(who, x)
    w = _flat(who, weight)
    options = _options(who, stride, padding, dilation, shape, groups=groups, order=order)
    return conv_transpose3d(x, w, bias, kernel_size=_size(w), **options, stream=stream)


def inverse_conv2d(
    x: SparseTensor,
    weight: ArrayLike,
    fine: Target,
    bias: ArrayLike | None = None,
    *,
    stride: int | tuple[int, int] = 2,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.inverse_conv3d` of a sparse map: the way back from `conv2d`, onto the rows of `fine`."""
    who = "inverse_conv2d"
    sparse_input(who, x)
    w = _flat(who, weight)
    return inverse_conv3d(
        x,
        w,
        fine,
        bias,
        kernel_size=_size(w),
        stride=_pair(who, "stride", stride, 1),
        padding=_pair(who, "padding", padding, 0),
        dilation=_pair(who, "dilation", dilation, 1),
        groups=groups,
        stream=stream,
    )


def pool2d(
    x: SparseTensor,
    *,
    mode: str = "sum",
    kernel_size: int | tuple[int, int] = 2,
    stride: int | tuple[int, int] = 2,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    shape: tuple[int, int] | None = None,
    order: str = "sorted",
    ties: str = "split",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.pool3d` with support="reached" of a sparse map."""
    sparse_input("pool2d", x)
    options = _options("pool2d", stride, padding, dilation, shape, order=order, ties=ties)
    size = _pair("pool2d", "kernel_size", kernel_size, 1)
    return pool3d(x, mode=mode, kernel_size=size, **options, stream=stream)


def max_pool2d(
    x: SparseTensor,
    *,
    kernel_size: int | tuple[int, int] = 2,
    stride: int | tuple[int, int] = 2,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    shape: tuple[int, int] | None = None,
    order: str = "sorted",
    ties: str = "split",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.max_pool3d` with support="reached" of a sparse map."""
    sparse_input("max_pool2d", x)
    options = _options("max_pool2d", stride, padding, dilation, shape, order=order, ties=ties)
    size = _pair("max_pool2d", "kernel_size", kernel_size, 1)
    return max_pool3d(x, kernel_size=size, **options, stream=stream)


def sum_over(x: SparseTensor, axis: int, *, stream: StreamOrDevice = None) -> SparseTensor:
    """Features of rows that differ in one axis only, added: axis 0, 1 or 2 after the batch.

    That coordinate becomes 0. Rows come by (batch, x, y, z), bounds shrink to one cell on the axis.
    Differentiable. Rows of x may occur twice, as those of `merge_levels` do.

    >>> import mlx.core as mx
    >>> from mlx_lattice import SparseTensor, ops
    >>> x = SparseTensor(mx.array([[0, 5, 1, 2], [0, 7, 1, 2]]), mx.array([[1.0], [2.0]]))
    >>> y = ops.sum_over(x, 0)
    >>> y.coords.tolist(), y.feats.tolist()
    ([[0, 0, 1, 2]], [[3.0]])
    """
    sparse_input("sum_over", x)
    return _ext.sum_over(x, integer("sum_over", "axis", axis, least=0, most=2), stream)


def merge_levels(levels: Sequence[SparseTensor]) -> SparseTensor:
    """Rows of all levels on the lattice of the first: coordinates times the ratio of strides.

    Rows are not joined: a place that several levels have occurs once per level; `sum_over` adds
    them. Levels have equal channels, and their strides are multiples of the first.

    Raises:
        ValueError: There is no level, or a stride is no multiple.
    """
    levels = listed("merge_levels", "levels", levels, "a list of SparseTensors")
    for level in levels:
        sparse_input("merge_levels", level)
    return _ext.merge_levels(levels)


def from_map(dense: mx.array, *, stride: int = 1) -> SparseTensor:
    """A dense map (B, H, W, C) as a sparse one with all cells, rows by (b, y, x).

    Dense 2D convolutions thus run on the kernels of sparse ones. Maps of equal size share their
    coordinates and relations. `to_map` goes back.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> x = ops.from_map(mx.ones((1, 4, 6, 2)))
    >>> ops.to_map(ops.conv2d(x, mx.ones((3, 3, 3, 2)), stride=2, padding=1)).shape
    (1, 2, 3, 3)
    """
    rows = array("from_map", "dense", dense, "B", "H", "W", "C")
    return _ext.from_map(rows, integer("from_map", "stride", stride))


def to_map(
    x: SparseTensor,
    shape: tuple[int, int] | None = None,
    *,
    batch_size: int | None = None,
    channels_first: bool = False,
    stream: StreamOrDevice = None,
) -> mx.array:
    """(B, H, W, C) of a sparse map, or (B, C, H, W); 0 where it has no row.

    shape: by default that of the bounds. batch_size: by default that of x.
    """
    sparse_input("to_map", x)
    bounds = _bounds("to_map", shape)
    batch = None if batch_size is None else integer("to_map", "batch_size", batch_size, 0)
    dense = _ext.to_map(x, None if bounds is None else bounds[1][1:], batch, stream)
    return mx.moveaxis(dense, 3, 1, stream=stream) if channels_first else dense
