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

from .._ext import KernelRelation, Rulebook
from .._ext import PointSet as _PointSet
from ..core._checks import array, finite, flag, integer, number, one_of, parameter_shape, positive
from ..ops.rulebook import radius_scaler, voxel_tap
from ..ops.segments import indexed_segment_reduce, segment_reduce
from ..ops.triplets import point_conv
from .point_set import PointSet
from .ragged import Ragged

if TYPE_CHECKING:
    from ..core.types import ArrayLike

INITS = ("fan_in", "fan_out")


class PointConv3d(mlx.nn.Module):
    """Point convolution: y_i = bias + sum over the points j near i of weight[cell of j - i] x_j.

    conv(x, points, stride=1, rfs=None) -> (y, points of y)
    conv(x, rulebook) -> y

    x is (N, in_channels) and `points` a PointSet of N points. At stride 1 the points stay.
    Otherwise y lies at the point nearest the center of each cell of stride * grid, with neighbors
    searched and quantized at the finer grid. The weight is
    (kernel_size^3, groups, in_channels / groups, out_channels / groups). A kernel_size of 1 is not
    a linear layer: it adds up the points within 0.62 grid.

    Args:
        kernel_size: The number of cells of the kernel along each axis.
        rfs: Receptive field scaler: the radius in units of that of kernel_size cells.
        shape: "ball", or "cube" for the largest difference of an axis.
        init: "fan_in" or "fan_out", by which the size of the first weights is chosen.

    Raises:
        TypeError: points is no PointSet.
        ValueError: groups does not divide the channels, or x has other rows or channels.
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
        self._rfs, self._shape = positive(self, "rfs", rfs), shape
        radius_scaler(self._size, self._rfs, shape)
        if self._channels[0] % self._groups or self._channels[1] % self._groups:
            raise ValueError(
                f"[{type(self).__name__}] groups must divide channels {self._channels}, "
                f"found {self._groups}"
            )
        one_of(self, "init", init, INITS)
        self._fill(self._size**3, bias, init)

    def _fill(self, cells: int, bias: bool, init: str) -> None:
        c_in, c_out = (c // self._groups for c in self._channels)
        bound = 1 / math.sqrt((c_in if init == "fan_in" else c_out) * cells)
        shape = parameter_shape(self, cells, self._groups, c_in, c_out)
        self.weight = mx.random.uniform(-bound, bound, shape)
        if flag(self, "bias", bias):
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
        target = points if number(self, "stride", stride) == 1 else points.downsample(stride)[0]
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
    """Strided point convolution in which each point belongs to one cell.

    conv(x, points, stride=2) -> (y, cell centers). The place of the point in its cell chooses the
    weight; each axis of the cell has kernel_size parts.
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
    """Strided point convolution that sees every point.

    conv(x, points, stride=2) -> (y, points of y); conv(x, rulebook) -> y. Each point lies within
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
        self._margin = finite(self, "margin", margin, 0)

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
    """Point convolution that makes its targets: conv(x, points) -> (y, voxel centers).

    Every point reaches all cells of its kernel. Voxels have the side grid / expansion. By default
    targets are the kernel_size^3 voxels around the voxel of each point.

    Args:
        expansion: How many times finer the voxels are than the grid.
        stencil: (K, 3) integers; targets are the voxels at these offsets, with K weights.
        subdivide: Targets are the expansion^3 parts of the voxel of side grid, with as many
            weights. kernel_size is not used.

    Examples:
        >>> from mlx_lattice import points
        >>> one = points.PointSet([[0.5, 0.5, 0.5]], grid=1.0)
        >>> conv = points.GenerativeConv3d(3, 8, expansion=2, subdivide=True)
        >>> y, parts = conv(one.positions, one)
        >>> len(parts), float(parts.positions[0, 0])
        (8, 0.25)
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
        subdivide = flag(self, "subdivide", subdivide)
        size = integer(self, "expansion", expansion) if subdivide else kernel_size
        super().__init__(in_channels, out_channels, size, groups, bias, init=init)
        self._expansion = positive(self, "expansion", expansion)
        self._subdivide, self._stencil = subdivide, None
        if stencil is not None:
            self._stencil = array(self, "stencil", stencil, "K", 3)
            if subdivide or not self._stencil.size:
                raise ValueError(
                    "[GenerativeConv3d] stencil must have shape (K, 3), without subdivide, "
                    f"found {self._stencil.shape}"
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
    """Convolution from coarse points onto the fine ones: layer(x, coarse, fine) -> y.

    x has a row per coarse point, y one per fine point. By default neighbors are searched within
    coarse.grid * radius_scaler and quantized at the coarse grid. A fine point without neighbors
    gets the bias.

    Args:
        straight_recover: The transposed convolution. It uses edges and weights of the strided
            convolution from fine to coarse with the kernel and rfs of this layer.
        recompute_k: Uses those edges with weights chosen by coarse - fine at the fine grid.
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
        self._transposed = flag(self, "straight_recover", straight_recover)
        self._requantized = flag(self, "recompute_k", recompute_k)
        # from a corner of a cell to the opposite one
        reach = math.sqrt(3) if shape == "ball" else 1
        if (
            not (self._transposed or self._requantized)
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
        """The edges from coarse to fine points that this layer sums over."""
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
    """(y, points of y): the largest value per channel over the neighbors of a convolution.

    x is (N, C) and `points` a PointSet of N points; the other arguments are those of `PointConv3d`.
    At stride 1 the points stay, otherwise y lies at one point per cell of stride * grid.
    """
    points = PointSet.of(points)
    x = array("max_pool3d", "x", x, len(points), "C")
    target = points if number("max_pool3d", "stride", stride) == 1 else points.downsample(stride)[0]
    rows, counts = points.near(target, kernel_size, rfs=rfs, shape=shape)
    return indexed_segment_reduce(x, rows, counts, "max"), target


class GlobalPool(mlx.nn.Module):
    """pool(x, lengths or points) -> (B, C): the "max", "min", "mean" or "sum" of each cloud.

    x is (T, C); lengths (B,) are the rows of each cloud, and a PointSet or a batch knows them. An
    empty cloud gives `empty_value`.
    """

    def __init__(self, mode: str = "mean", empty_value: float = 0.0) -> None:
        super().__init__()
        self._mode = one_of(self, "mode", mode, ("max", "min", "mean", "sum"))
        self._empty = number(self, "empty_value", empty_value)

    def __call__(self, x: mx.array, where: mx.array | PointSet | Ragged) -> mx.array:
        lengths = where.lengths if isinstance(where, (_PointSet, Ragged)) else where
        return segment_reduce(x, lengths, self._mode, empty_value=self._empty)

    forward = __call__

    def _extra_repr(self) -> str:
        return f"mode={self._mode}"
