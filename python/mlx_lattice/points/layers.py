"""Layers on points without voxels: convolution, upsampling and pooling.

    y_i = bias + sum over edges (j, i, k) of weight[k] x_j,  k: one of kernel_size^3 cells around i

Targets are kept, chosen or made. Features x are (N, C) arrays; a PointSet says where their rows
are. docs/points.md explains the geometry.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, overload

import mlx.core as mx
import mlx.nn

from .._ext import KernelRelation, Rulebook, point_conv, radius_scaler, voxel_tap
from ..nn._checks import integer, number, parameter_shape
from .geometry import PointSet
from .segments import indexed_segment_reduce, segment_reduce

if TYPE_CHECKING:
    from .._types import ArrayLike

INITS = ("fan_in", "fan_out")


class PointConv3d(mlx.nn.Module):
    """Convolution with kernel_size^3 weights of shape (groups, in / groups, out / groups).

    conv(x, rulebook) -> y
    conv(x, points, stride=1, rfs=None) -> (y, points of y)

    At stride 1 the points stay. Otherwise y lies at the point nearest the center of each cell of
    stride * grid, with neighbors searched and quantized at the finer grid.
    A kernel_size of 1 is not a linear layer: it adds up the points within 0.62 grid.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        groups: int = 1,
        bias: bool = True,
        *,
        rfs: float = 1.0,
        shape: str = "ball",
        init: str = "fan_in",
    ) -> None:
        super().__init__()
        self._channels = (
            integer(self, "in_channels", in_channels),
            integer(self, "out_channels", out_channels),
        )
        self._size, self._groups = (
            integer(self, "kernel_size", kernel_size),
            integer(self, "groups", groups),
        )
        self._rfs, self._shape = (
            number(self, "rfs", rfs, 0, math.inf, low_included=False, high_included=False),
            shape,
        )
        radius_scaler(self._size, self._rfs, shape)
        if self._channels[0] % self._groups or self._channels[1] % self._groups:
            raise ValueError(
                f"[{type(self).__name__}] groups must divide channels {self._channels}, "
                f"got {self._groups}"
            )
        if init not in INITS:
            raise ValueError(
                f"[{type(self).__name__}] init must be one of {', '.join(INITS)}, got {init!r}"
            )
        self._fill(self._size**3, bias, init)

    def _fill(self, cells: int, bias: bool, init: str) -> None:
        c_in, c_out = (c // self._groups for c in self._channels)
        bound = 1 / math.sqrt((c_in if init == "fan_in" else c_out) * cells)
        shape = parameter_shape(self, cells, self._groups, c_in, c_out)
        self.weight = mx.random.uniform(-bound, bound, shape)
        if bias:
            self.bias = mx.random.uniform(-bound, bound, (self._channels[1],))

    @overload
    def __call__(self, x: mx.array, where: Rulebook | KernelRelation) -> mx.array: ...

    @overload
    def __call__(
        self, x: mx.array, where: PointSet, stride: int = 1, rfs: float | None = None
    ) -> tuple[mx.array, PointSet]: ...

    def __call__(
        self,
        x: mx.array,
        where: PointSet | Rulebook | KernelRelation,
        stride: int = 1,
        rfs: float | None = None,
    ) -> mx.array | tuple[mx.array, PointSet]:
        if isinstance(where, (Rulebook, KernelRelation)):
            return self._run(x, where)
        points = PointSet.of(where)
        target = points if stride == 1 else points.downsample(stride)[0]
        book = points.rulebook(
            target, self._size, rfs=self._rfs if rfs is None else rfs, shape=self._shape
        )
        return self._run(x, book), target

    def _run(self, x: mx.array, book: Rulebook | KernelRelation) -> mx.array:
        relation = book.relation if isinstance(book, Rulebook) else book
        return point_conv(x, self.weight, relation, self.get("bias"))

    forward = __call__

    def _extra_repr(self) -> str:
        a, b = self._channels
        return (
            f"{a}, {b}, kernel_size={self._size}, groups={self._groups}, rfs={self._rfs}, "
            f"bias={'bias' in self}"
        )


class PartitionConv3d(PointConv3d):
    """Strided convolution in which each point belongs to one cell.

    (x, points, stride) -> (y, cell centers). The place of the point in its cell chooses the weight;
    each axis of the cell has kernel_size parts.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 2,
        groups: int = 1,
        bias: bool = True,
        *,
        init: str = "fan_in",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, bias, init=init)

    def __call__(  # type: ignore[override]
        self, x: mx.array, points: PointSet, stride: int = 2
    ) -> tuple[mx.array, PointSet]:
        target, book = PointSet.of(points).partition(stride, self._size)
        return self._run(x, book), target

    forward = __call__  # type: ignore[assignment]


class FullCoverConv3d(PointConv3d):
    """Strided convolution that sees every point.

    (x, points, stride) -> (y, points of y); (x, rulebook) -> y. Each point lies within
    R = sqrt(3) / 2 * stride * (1 + margin) * grid of a target. Edges are the points within R; no
    offset is clamped. This needs kernel_size >= 2 ceil(R / grid) + 1, at stride 2 five cells per
    axis. The way back is another layer on
    `points.full_cover(stride, kernel_size)[1].transposed(negate=True)`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 5,
        groups: int = 1,
        bias: bool = True,
        *,
        margin: float = 0.01,
        init: str = "fan_in",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, bias, init=init)
        self._margin = number(self, "margin", margin, 0, math.inf, high_included=False)

    @overload  # type: ignore[override]
    def __call__(self, x: mx.array, where: Rulebook | KernelRelation) -> mx.array: ...

    @overload
    def __call__(
        self, x: mx.array, where: PointSet, stride: int = 2
    ) -> tuple[mx.array, PointSet]: ...

    def __call__(
        self, x: mx.array, where: PointSet | Rulebook | KernelRelation, stride: int = 2
    ) -> mx.array | tuple[mx.array, PointSet]:
        if isinstance(where, (Rulebook, KernelRelation)):
            return self._run(x, where)
        target, book = PointSet.of(where).full_cover(stride, self._size, self._margin)
        return self._run(x, book), target

    forward = __call__  # type: ignore[assignment]


class GenerativeConv3d(PointConv3d):
    """Convolution that makes its targets: (x, points) -> (y, voxel centers).

    Every point reaches all cells of its kernel. Voxels have the side grid / expansion. By default
    targets are the kernel_size^3 voxels around the voxel of each point.

    stencil: (K, 3) integers; targets are the voxels at these offsets, with K weights.
    subdivide: targets are the expansion^3 parts of the voxel of side grid, with as many weights.
        kernel_size is not used.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        groups: int = 1,
        bias: bool = True,
        *,
        expansion: float = 1.0,
        stencil: ArrayLike | None = None,
        subdivide: bool = False,
        init: str = "fan_in",
    ) -> None:
        size = integer(self, "expansion", expansion) if subdivide else kernel_size
        super().__init__(in_channels, out_channels, size, groups, bias, init=init)
        self._expansion = number(
            self, "expansion", expansion, 0, math.inf, low_included=False, high_included=False
        )
        self._subdivide, self._stencil = bool(subdivide), None
        if stencil is not None:
            self._stencil = mx.array(stencil)
            if (
                subdivide
                or self._stencil.ndim != 2
                or self._stencil.shape[1] != 3
                or not self._stencil.size
            ):
                raise ValueError(
                    "[GenerativeConv3d] stencil must have shape (K, 3), without subdivide, "
                    f"got {self._stencil.shape}"
                )
            self._fill(self._stencil.shape[0], bias, init)

    def __call__(  # type: ignore[override]
        self, x: mx.array, points: PointSet
    ) -> tuple[mx.array, PointSet]:
        points = PointSet.of(points)
        if self._subdivide:
            target, book = points.subdivide(self._size)
        else:
            target, book = points.generate(self._size, self._expansion, self._stencil)
        return self._run(x, book), target

    forward = __call__  # type: ignore[assignment]


class Upsample(PointConv3d):
    """Convolution from coarse points onto the fine ones: (x, coarse, fine) -> y.

    By default neighbors are searched within coarse.grid * radius_scaler and quantized at the coarse
    grid. A fine point without neighbors gets the bias.

    straight_recover: the transposed convolution. It uses edges and weights of the strided
        convolution from fine to coarse with the kernel and rfs of this layer.
    recompute_k: uses those edges with weights chosen by coarse - fine at the fine grid.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        groups: int = 1,
        bias: bool = True,
        *,
        rfs: float = 1.0,
        shape: str = "ball",
        straight_recover: bool = False,
        recompute_k: bool = False,
        init: str = "fan_in",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, groups, bias, rfs=rfs, shape=shape, init=init
        )
        self._transposed, self._requantized = bool(straight_recover), bool(recompute_k)
        reach = (
            math.sqrt(3) if shape == "ball" else 1
        )  # from a corner of a cell to the opposite one
        if (
            not (straight_recover or recompute_k)
            and radius_scaler(self._size, self._rfs, shape) < reach
        ):
            warnings.warn(
                "[Upsample] the radius is less than a cell's diagonal: "
                "a fine point may have no neighbor",
                stacklevel=2,
            )

    def __call__(  # type: ignore[override]
        self, x: mx.array, coarse: PointSet, fine: PointSet
    ) -> mx.array:
        return self._run(x, self.rulebook(coarse, fine))

    forward = __call__  # type: ignore[assignment]

    def rulebook(self, coarse: PointSet, fine: PointSet) -> Rulebook | KernelRelation:
        coarse, fine = PointSet.of(coarse), PointSet.of(fine)
        options: dict[str, Any] = {"rfs": self._rfs, "shape": self._shape}
        if not (self._transposed or self._requantized):
            return coarse.rulebook(fine, self._size, **options, allow_empty=True)
        up = fine.rulebook(coarse, self._size, **options).transposed()
        if not self._requantized:
            return up
        i, j, _, _ = up.triplets()
        offsets = coarse.positions[j] - fine.positions[i] if i.size else coarse.positions[:0]
        k = voxel_tap(offsets, fine.grid, self._size)
        return KernelRelation(j, i, k, n_in=len(coarse), n_out=len(fine), n_kernels=self._size**3)


def max_pool3d(
    x: mx.array,
    points: PointSet,
    kernel_size: int = 3,
    stride: int = 2,
    *,
    rfs: float = 1.0,
    shape: str = "ball",
) -> tuple[mx.array, PointSet]:
    """(y, points of y): the largest value per channel over the neighbors of a convolution."""
    points = PointSet.of(points)
    target = points if stride == 1 else points.downsample(stride)[0]
    rows, counts = points.near(target, kernel_size, rfs=rfs, shape=shape)
    return indexed_segment_reduce(x, rows, counts, "max"), target


class GlobalPool(mlx.nn.Module):
    """(x, lengths or points) -> (B, C): max, min, mean or sum of each cloud.

    An empty cloud gives `empty_value`.
    """

    def __init__(self, mode: str = "mean", empty_value: float = 0.0) -> None:
        super().__init__()
        if mode not in ("max", "min", "mean", "sum"):
            raise ValueError(f"[GlobalPool] mode must be max, min, mean or sum, got {mode!r}")
        self._mode, self._empty = mode, empty_value

    def __call__(self, x: mx.array, where: mx.array | PointSet) -> mx.array:
        lengths = where if isinstance(where, mx.array) else where.lengths
        return segment_reduce(x, lengths, self._mode, empty_value=self._empty)

    forward = __call__

    def _extra_repr(self) -> str:
        return f"mode={self._mode}"
