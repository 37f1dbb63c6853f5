"""Sparse maps in two dimensions; docs/ops/relations.md.

A map is a `SparseTensor` whose coordinates are (batch, 0, y, x). Its kernels have one cell along
the first axis, so that this axis costs nothing: it has no bits in the keys that are sorted, and no
offsets that are walked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from .._ext import SparseTensor
from ..core._checks import MOST, array, integer, listed, sparse_input, told
from .conv import conv3d, conv_transpose3d, inverse_conv3d, subm_conv3d
from .pool import max_pool3d, pool3d
from .segments import segment_reduce

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
    shape: tuple[int, int] | None = None,
    groups: int = 1,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.conv_transpose3d` with support="reached" of a sparse map."""
    sparse_input("conv_transpose2d", x)
    w = _flat("conv_transpose2d", weight)
    options = _options("conv_transpose2d", stride, padding, 1, shape, groups=groups, order=order)
    return conv_transpose3d(x, w, bias, kernel_size=_size(w), **options, stream=stream)


def inverse_conv2d(
    x: SparseTensor,
    weight: ArrayLike,
    fine: Target,
    bias: ArrayLike | None = None,
    *,
    stride: int | tuple[int, int] = 2,
    padding: int | tuple[int, int] = 0,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`ops.inverse_conv3d` of a sparse map: the way back from `conv2d`, onto the rows of `fine`."""
    sparse_input("inverse_conv2d", x)
    w = _flat("inverse_conv2d", weight)
    return inverse_conv3d(
        x,
        w,
        fine,
        bias,
        kernel_size=_size(w),
        stride=_pair("inverse_conv2d", "stride", stride, 1),
        padding=_pair("inverse_conv2d", "padding", padding, 0),
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
    """Features of rows that differ in one axis only, added: axis 0, 1 or 2 behind the batch.

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
    axis = integer("sum_over", "axis", axis, least=0, most=2)
    keep = mx.array([column != axis + 1 for column in range(4)])
    flat = SparseTensor(mx.where(keep, x.coords, 0), x.feats, stride=x.stride)
    ordered, order = flat.sorted()
    rows = ordered.coords
    n = rows.shape[0]
    if n == 0:
        return _with_bounds(ordered, x, axis)
    starts = mx.concatenate([mx.array([True]), mx.any(rows[1:] != rows[:-1], axis=1)])
    count = int(starts.sum())
    first = mx.sort(mx.where(starts, mx.arange(n), n))[:count]
    lengths = mx.concatenate([first[1:], mx.array([n])]) - first
    total = segment_reduce(x.feats[order], lengths, "sum", stream=stream)
    return _with_bounds(SparseTensor(rows[first], total, stride=x.stride), x, axis)


def _with_bounds(y: SparseTensor, x: SparseTensor, axis: int) -> SparseTensor:
    if x.bounds is None:
        return y
    low, high = x.bounds
    return y.with_bounds((_replaced(low, axis, 0), _replaced(high, axis, 1)))


def _replaced(corner: Sequence[int], axis: int, value: int) -> tuple[int, int, int]:
    a, b, c = (value if i == axis else n for i, n in enumerate(corner))
    return a, b, c


def merge_levels(levels: Sequence[SparseTensor]) -> SparseTensor:
    """Rows of all levels on the lattice of the first: coordinates times the ratio of strides.

    Rows are not joined: a place that several levels have occurs as often; `sum_over` adds them.
    Levels have equal channels, and their strides are multiples of the first.

    Raises:
        ValueError: There is no level, or a stride is no multiple.
    """
    levels = listed("merge_levels", "levels", levels, "a list of SparseTensors")
    if not levels:
        raise ValueError("[merge_levels] levels must hold at least one tensor")
    for level in levels:
        sparse_input("merge_levels", level)
    first = levels[0]
    coords, feats = [], []
    for level in levels:
        ratio = [b // a for a, b in zip(first.stride, level.stride)]
        if any(a * r != b for a, b, r in zip(first.stride, level.stride, ratio)):
            raise ValueError(
                f"[merge_levels] stride {level.stride} is no multiple of {first.stride}"
            )
        coords.append(level.coords * mx.array([1, *ratio], level.coords.dtype))
        feats.append(level.feats)
    merged = SparseTensor(mx.concatenate(coords), mx.concatenate(feats), stride=first.stride)
    return merged if first.bounds is None else merged.with_bounds(first.bounds)


@lru_cache(maxsize=16)
def _full_map(batch: int, height: int, width: int, stride: int) -> SparseTensor:
    """A tensor without channels on all cells; its manager keeps the relations of all who ask."""
    b, y, x = mx.meshgrid(mx.arange(batch), mx.arange(height), mx.arange(width), indexing="ij")
    rows = mx.stack([b, mx.zeros_like(b), y, x], axis=-1).reshape(-1, 4).astype(mx.int32)
    step = (1, stride, stride)
    full = SparseTensor(
        rows,
        mx.zeros((rows.shape[0], 0)),
        stride=step,
        batch_counts=(height * width,) * batch,
    )
    return full.with_bounds(((0, 0, 0), (1, height, width)))


def from_map(dense: mx.array, *, stride: int = 1) -> SparseTensor:
    """A dense map (B, H, W, C) as a sparse one with all cells, rows by (b, y, x).

    Dense 2D convolutions so run on the kernels of sparse ones: maps of equal size share their
    coordinates and relations. `to_map` goes back.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> x = ops.from_map(mx.ones((1, 4, 6, 2)))
    >>> ops.to_map(ops.conv2d(x, mx.ones((3, 3, 3, 2)), stride=2, padding=1)).shape
    (1, 2, 3, 3)
    """
    rows = array("from_map", "dense", dense, "B", "H", "W", "C")
    stride = integer("from_map", "stride", stride)
    b, h, w, c = rows.shape
    return _full_map(b, h, w, stride).with_feats(rows.reshape(b * h * w, c))


def to_map(
    x: SparseTensor, shape: tuple[int, int] | None = None, *, batch_size: int | None = None
) -> mx.array:
    """(B, H, W, C) of a sparse map; 0 where it has no row. shape: by default its bounds."""
    sparse_input("to_map", x)
    bounds = x.bounds if shape is None else _bounds("to_map", shape)
    if bounds is None:
        raise ValueError("[to_map] the tensor has no bounds; give shape=(H, W)")
    _, height, width = bounds[1]
    batch = x.batch_size if batch_size is None else integer("to_map", "batch_size", batch_size, 0)
    if x.active_count == batch * height * width and x.active_count:
        ordered, order = x.sorted()
        # As many rows as cells are all cells only if none is outside or occurs twice.
        if mx.array_equal(ordered.coords, _full_map(batch, height, width, 1).coords):
            feats = x.feats if ordered.coord_key == x.coord_key else x.feats[order]
            return feats.reshape(batch, height, width, x.channels)
    return x.to_dense((batch, 1, height, width))[:, 0]
