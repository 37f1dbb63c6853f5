"""Builders of kernel relations: build_* on coordinates (N, 4), the others on tensors.

A relation is a set of edges (input row i, output row o, kernel offset k):

    kind               output coordinates                   an edge joins output c with the input at
    forward            the distinct floor(c / stride)       c * stride + offset - padding
    target             given                                c * stride + offset - padding
    submanifold        those of the input                   c + offset
    transposed         distinct c * stride + offset - pad.  (c + padding - offset) / stride
    generative         distinct c * stride + offset         (c - offset) / stride
    target_transposed  given                                (c + padding - offset) / stride

kernel_size is one integer, one per axis (x, y, z) or a `KernelSpec`, which also has the stride,
padding and dilation. The manager of a tensor keeps the relations of that tensor. ValueError: a
coordinate appears twice, or an argument does not fit; OverflowError: a coordinate leaves its dtype.
docs/ops/relations.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _ext
from ..compat import active, active_rows_second

if TYPE_CHECKING:
    import mlx.core as mx

    from .._ext import KernelRelation, SparseTensor
    from ..core.types import ArrayLike, Kernel, StreamOrDevice, Target, Triple

    ActiveRows = int | mx.array | None

__all__ = [
    "build_generative_relation",
    "build_kernel_relation",
    "build_submanifold_kernel_relation",
    "build_target_kernel_relation",
    "build_target_transposed_relation",
    "build_transposed_kernel_relation",
    "generative_kernel_relation",
    "kernel_offsets",
    "kernel_relation",
    "submanifold_kernel_relation",
    "target_kernel_relation",
    "target_transposed_kernel_relation",
    "transposed_kernel_relation",
]


def kernel_offsets(
    kernel_size: Triple = 3, dilation: Triple = 1, centered: bool = True
) -> tuple[tuple[int, int, int], ...]:
    """The offsets (x, y, z) of a kernel in id order: x is outermost, z fastest.

    Centered: an odd size is centered on 0. Even sizes, and all sizes without `centered`, begin
    at 0.

    >>> from mlx_lattice import ops
    >>> ops.kernel_offsets((3, 1, 1), dilation=2)
    ((-2, 0, 0), (0, 0, 0), (2, 0, 0))
    """
    return _ext.kernel_offsets(kernel_size, dilation, centered)


@active_rows_second
def build_kernel_relation(
    coords: ArrayLike,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The forward relation of coordinates. active_rows: the prefix of rows that counts."""
    rows = active(coords, active_rows, "build_kernel_relation")
    return _ext.build_kernel_relation(rows, kernel_size, stride, padding, dilation, stream)


@active_rows_second
def build_submanifold_kernel_relation(
    coords: ArrayLike,
    kernel_size: Kernel = 3,
    dilation: Triple = 1,
    *,
    active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The submanifold relation of coordinates; kernel_size must be odd (ValueError)."""
    rows = active(coords, active_rows, "build_submanifold_kernel_relation")
    return _ext.build_submanifold_kernel_relation(rows, kernel_size, 1, 0, dilation, stream)


@active_rows_second
def build_target_kernel_relation(
    coords: ArrayLike,
    target_coords: ArrayLike,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    active_rows: ActiveRows = None,
    target_active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The forward relation onto given output coordinates (M, 4), in their order."""
    name = "build_target_kernel_relation"
    rows = active(coords, active_rows, name)
    target = active(target_coords, target_active_rows, name, "target_active_rows")
    return _ext.build_target_kernel_relation(
        rows, target, kernel_size, stride, padding, dilation, stream
    )


@active_rows_second
def build_transposed_kernel_relation(
    coords: ArrayLike,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The transposed relation of coordinates, first seen first."""
    rows = active(coords, active_rows, "build_transposed_kernel_relation")
    return _ext.build_transposed_kernel_relation(
        rows, kernel_size, stride, padding, dilation, stream
    )


@active_rows_second
def build_generative_relation(
    coords: ArrayLike,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    *,
    active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The transposed relation that makes a new support: padding 0, dilation 1."""
    rows = active(coords, active_rows, "build_generative_relation")
    return _ext.build_generative_relation(rows, kernel_size, stride, 0, 1, stream)


@active_rows_second
def build_target_transposed_relation(
    coords: ArrayLike,
    target_coords: ArrayLike,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    active_rows: ActiveRows = None,
    target_active_rows: ActiveRows = None,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The transposed relation onto given output coordinates (M, 4), in their order."""
    name = "build_target_transposed_relation"
    rows = active(coords, active_rows, name)
    target = active(target_coords, target_active_rows, name, "target_active_rows")
    return _ext.build_target_transposed_relation(
        rows, target, kernel_size, stride, padding, dilation, stream
    )


def kernel_relation(
    x: SparseTensor,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The forward relation of a tensor, which `conv3d` and pooling with these arguments use.

    >>> from mlx_lattice import ops, samples
    >>> x = samples.tensor()
    >>> r = ops.kernel_relation(x, 2, 2)
    >>> r.edges.in_rows.tolist(), r.edges.out_rows.tolist()
    ([0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3])
    >>> ops.kernel_relation(x, 2, 2) is r
    True
    """
    return _ext.kernel_relation(x, kernel_size, stride, padding, dilation, stream)


def submanifold_kernel_relation(
    x: SparseTensor,
    kernel_size: Kernel = 3,
    dilation: Triple = 1,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The submanifold relation of a tensor; kernel_size must be odd (ValueError)."""
    return _ext.submanifold_kernel_relation(x, kernel_size, 1, 0, dilation, stream)


def target_kernel_relation(
    x: SparseTensor,
    target: Target,
    kernel_size: Kernel = 3,
    stride: Triple = 1,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The forward relation onto the coordinates of a tensor, a key of x's manager, or rows (M, 4).

    A tensor or key must have stride `x.stride * stride` (ValueError).
    """
    return _ext.target_kernel_relation(x, target, kernel_size, stride, padding, dilation, stream)


def transposed_kernel_relation(
    x: SparseTensor,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The transposed relation of a tensor; stride must divide x.stride (ValueError)."""
    return _ext.transposed_kernel_relation(x, kernel_size, stride, padding, dilation, stream)


def generative_kernel_relation(
    x: SparseTensor,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The relation of `generative_conv_transpose3d`; stride must divide x.stride (ValueError)."""
    return _ext.generative_kernel_relation(x, kernel_size, stride, 0, 1, stream)


def target_transposed_kernel_relation(
    x: SparseTensor,
    target: Target,
    kernel_size: Kernel = 2,
    stride: Triple = 2,
    padding: Triple = 0,
    dilation: Triple = 1,
    *,
    stream: StreamOrDevice = None,
) -> KernelRelation:
    """The transposed relation onto the coordinates of a tensor, a key, or rows (M, 4)."""
    return _ext.target_transposed_kernel_relation(
        x, target, kernel_size, stride, padding, dilation, stream
    )
