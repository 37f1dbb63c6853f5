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
from .conv import conv3d, conv_transpose3d, inverse_conv3d, subm_conv3d
from .pool import max_pool3d, pool3d
from .segments import segment_reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.types import ArrayLike, StreamOrDevice, Target

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
    rows = coords if isinstance(coords, mx.array) else mx.array(coords)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"[planar] coords must have shape (N, 3): batch, y, x; got {rows.shape}")
    rows = mx.concatenate([rows[:, :1], mx.zeros_like(rows[:, :1]), rows[:, 1:]], axis=1)
    x = SparseTensor(rows, feats if isinstance(feats, mx.array) else mx.array(feats))
    return x if shape is None else x.with_bounds(((0, 0, 0), (1, *shape)))


def _pair(value: Any, first: int) -> tuple[int, int, int]:
    y, x = value if isinstance(value, (tuple, list)) else (value, value)
    return first, int(y), int(x)


def _flat(name: str, weight: ArrayLike) -> mx.array:
    w = weight if isinstance(weight, mx.array) else mx.array(weight)
    if w.ndim != 4:
        raise ValueError(f"[{name}] weight must have shape (C_out, Ky, Kx, C_in), got {w.shape}")
    return w[:, None]


def _size(weight: mx.array) -> tuple[int, int, int]:
    return 1, weight.shape[2], weight.shape[3]


def _options(
    stride: Any, padding: Any, dilation: Any, shape: tuple[int, int] | None, **more: Any
) -> dict[str, Any]:
    bounds = None if shape is None else ((0, 0, 0), (1, *shape))
    return {
        "stride": _pair(stride, 1),
        "padding": _pair(padding, 0),
        "dilation": _pair(dilation, 1),
        "bounds": bounds,
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
    w = _flat("conv2d", weight)
    options = _options(stride, padding, dilation, shape, groups=groups, order=order)
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
    w = _flat("subm_conv2d", weight)
    by = _pair(dilation, 1)
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
    w = _flat("conv_transpose2d", weight)
    options = _options(stride, padding, 1, shape, groups=groups, order=order)
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
    w = _flat("inverse_conv2d", weight)
    return inverse_conv3d(
        x,
        w,
        fine,
        bias,
        kernel_size=_size(w),
        stride=_pair(stride, 1),
        padding=_pair(padding, 0),
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
    options = _options(stride, padding, dilation, shape, order=order, ties=ties)
    return pool3d(x, mode=mode, kernel_size=_pair(kernel_size, 1), **options, stream=stream)


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
    options = _options(stride, padding, dilation, shape, order=order, ties=ties)
    return max_pool3d(x, kernel_size=_pair(kernel_size, 1), **options, stream=stream)


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
    if axis not in (0, 1, 2):
        raise ValueError(f"[sum_over] axis must be 0, 1 or 2, got {axis!r}")
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
    if not levels:
        raise ValueError("[merge_levels] needs at least one tensor")
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
    if dense.ndim != 4:
        raise ValueError(f"[from_map] the map must have shape (B, H, W, C), got {dense.shape}")
    b, h, w, c = dense.shape
    return _full_map(b, h, w, stride).with_feats(dense.reshape(b * h * w, c))


def to_map(
    x: SparseTensor, shape: tuple[int, int] | None = None, *, batch_size: int | None = None
) -> mx.array:
    """(B, H, W, C) of a sparse map; 0 where it has no row. shape: by default its bounds."""
    if shape is None:
        if x.bounds is None:
            raise ValueError("[to_map] the tensor has no bounds; give shape=(H, W)")
        shape = x.bounds[1][1], x.bounds[1][2]
    batch = x.batch_size if batch_size is None else batch_size
    if x.active_count == batch * shape[0] * shape[1] and x.active_count:
        ordered, order = x.sorted()
        feats = x.feats if ordered.coord_key == x.coord_key else x.feats[order]
        return feats.reshape(batch, *shape, x.channels)
    return x.to_dense((batch, 1, *shape))[:, 0]
