"""Pooling over kernels and batch items, upsampling, and broadcasting back; docs/ops/pool.md.

Pooling reads the same relations as convolutions; `ops.conv3d` says what kernel_size, stride,
padding and dilation mean. All operations are differentiable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import SparseTensor
    from ..core.types import ArrayLike, Bounds, Kernel, StreamOrDevice, Target, Triple

__all__ = [
    "avg_pool3d",
    "broadcast_add",
    "broadcast_cat",
    "broadcast_mul",
    "global_avg_pool",
    "global_max_pool",
    "global_pool",
    "global_sum_pool",
    "max_pool3d",
    "pool3d",
    "pool_transpose3d",
    "sum_pool3d",
    "trilinear_upsample3d",
]


def pool3d(
    x: SparseTensor,
    *,
    mode: str = "sum",
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    ties: str = "split",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`y[o] = sum, avg or max over the edges (i, o, k) of x[i]`; 0 for a row without edges.

    The output has stride `x.stride * stride`. avg divides by the number of edges of the row. ties
    says who gets the gradient of equal maxima: "split" shares it, "all" gives it to each, "first"
    to the lowest row. support, bounds and order are those of `conv3d`.

    >>> from mlx_lattice import ops, samples
    >>> y = ops.pool3d(samples.tensor(), mode="max")
    >>> y.shape, y.stride
    ((4, 4), (2, 2, 2))
    """
    return _ext.pool3d(
        x,
        mode,
        kernel_size,
        stride,
        padding,
        dilation,
        support,
        bounds,
        order,
        ties,
        stream,
    )


def sum_pool3d(
    x: SparseTensor,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`pool3d` with mode "sum"."""
    return _ext.sum_pool3d(
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        support,
        bounds,
        order,
        "split",
        stream,
    )


def avg_pool3d(
    x: SparseTensor,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`pool3d` with mode "avg": the mean of the rows that are present."""
    return _ext.avg_pool3d(
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        support,
        bounds,
        order,
        "split",
        stream,
    )


def max_pool3d(
    x: SparseTensor,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    support: str = "floor",
    bounds: Bounds | None = None,
    order: str = "sorted",
    ties: str = "split",
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`pool3d` with mode "max"."""
    return _ext.max_pool3d(
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        support,
        bounds,
        order,
        ties,
        stream,
    )


def pool_transpose3d(
    x: SparseTensor,
    target: Target | None = None,
    *,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """The mean of the coarse rows that reach each fine row over the transposed relation.

    The output has stride `x.stride / stride`, which must divide (ValueError), and the coordinates
    of `target` where it is given.
    """
    return _ext.pool_transpose3d(x, target, kernel_size, stride, padding, dilation, stream)


def trilinear_upsample3d(
    x: SparseTensor,
    target: Target | None = None,
    *,
    stride: Triple = 2,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Trilinear interpolation of coarse rows, divided by the sum of the weights that are present.

    Onto `target`, or onto the `stride ** 3` fine cells of each coarse one.
    """
    return _ext.trilinear_upsample3d(x, target, stride, stream)


def global_pool(
    x: SparseTensor,
    *,
    mode: str = "sum",
    batch_size: int | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """(B, C): sum, avg or max over the rows of each batch item; 0 for an item without rows.

    batch_size: B; by default as many as the tensor has.
    """
    return _ext.global_pool(x, mode, batch_size, stream)


def global_sum_pool(
    x: SparseTensor, *, batch_size: int | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """`global_pool` with mode "sum"."""
    return _ext.global_sum_pool(x, batch_size, stream)


def global_avg_pool(
    x: SparseTensor, *, batch_size: int | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """`global_pool` with mode "avg"."""
    return _ext.global_avg_pool(x, batch_size, stream)


def global_max_pool(
    x: SparseTensor, *, batch_size: int | None = None, stream: StreamOrDevice = None
) -> mx.array:
    """`global_pool` with mode "max"."""
    return _ext.global_max_pool(x, batch_size, stream)


def broadcast_add(
    x: SparseTensor, per_batch: ArrayLike, *, stream: StreamOrDevice = None
) -> SparseTensor:
    """`x[r] + per_batch[batch item of r]`; per_batch (B, C)."""
    return _ext.broadcast_add(x, per_batch, stream)


def broadcast_mul(
    x: SparseTensor, per_batch: ArrayLike, *, stream: StreamOrDevice = None
) -> SparseTensor:
    """`x[r] * per_batch[batch item of r]`; per_batch (B, C).

    >>> from mlx_lattice import ops, samples
    >>> x = samples.tensor()
    >>> ops.broadcast_mul(x, [[0.0] * 4, [1.0] * 4]).feats.sum(axis=1).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 20.6...]
    """
    return _ext.broadcast_mul(x, per_batch, stream)


def broadcast_cat(
    x: SparseTensor, per_batch: ArrayLike, *, stream: StreamOrDevice = None
) -> SparseTensor:
    """The channels of x[r] and of per_batch[batch item of r] side by side; per_batch (B, D)."""
    return _ext.broadcast_cat(x, per_batch, stream)
