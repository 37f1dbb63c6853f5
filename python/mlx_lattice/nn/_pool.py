"""Pooling modules, which have no parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.nn as nn

from .. import ops
from ..core import KernelSpec
from ..core._checks import integer, one_of, sparse_input

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

    from ..core import SparseTensor
    from ..core.types import Target, Triple


class _Local(nn.Module):
    """The base of modules with a kernel."""

    def __init__(
        self,
        kernel_size: Triple = 2,
        stride: Triple = 2,
        padding: Triple = 0,
        dilation: Triple = 1,
    ) -> None:
        super().__init__()
        self._spec = KernelSpec(kernel_size, stride, padding, dilation)

    @property
    def spec(self) -> KernelSpec:
        """Size, stride, padding and dilation of the kernel."""
        return self._spec

    def _extra_repr(self) -> str:
        s = self._spec
        return (
            f"kernel_size={tuple(s.size)}, stride={tuple(s.stride)}, padding={tuple(s.padding)}, "
            f"dilation={tuple(s.dilation)}"
        )


class Pool3d(_Local):
    """Sum, mean or maximum over a kernel: layer(x) -> (M, C) at x.stride * stride.

    The output rows are the coordinates of x divided by the stride. A mean divides by the number of
    rows in the kernel, not by its size: empty voxels do not count.

    Args:
        mode: "sum", "avg" or "max".
        padding: Shifts the kernel, as in `Conv3d`.

    Raises:
        TypeError: x is not a SparseTensor.
        ValueError: Another mode.
    """

    def __init__(
        self,
        mode: str = "sum",
        kernel_size: Triple = 2,
        stride: Triple = 2,
        padding: Triple = 0,
        dilation: Triple = 1,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation)
        self.mode = one_of(self, "mode", mode, ("sum", "avg", "max"))

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return ops.pool3d(sparse_input(self, x), mode=self.mode, kernel_size=self._spec)

    def _extra_repr(self) -> str:
        return f"mode={self.mode}, {super()._extra_repr()}"


class _OneMode(Pool3d):
    _only: str

    def __init__(
        self,
        kernel_size: Triple = 2,
        stride: Triple = 2,
        padding: Triple = 0,
        dilation: Triple = 1,
    ) -> None:
        super().__init__(self._only, kernel_size, stride, padding, dilation)


class SumPool3d(_OneMode):
    """The sum of the rows in a kernel: `Pool3d("sum", ...)`."""

    _only = "sum"


class AvgPool3d(_OneMode):
    """The mean of the rows in a kernel: `Pool3d("avg", ...)`."""

    _only = "avg"


class MaxPool3d(_OneMode):
    """The maximum of the rows in a kernel, per channel: `Pool3d("max", ...)`."""

    _only = "max"


class PoolTranspose3d(_Local):
    """The reverse of a pooling: layer(x, target) -> (M, C) at x.stride / stride.

    Each row of the finer coordinates gets the mean of the rows of x whose kernel reaches it. The
    coordinates are those of `target`; without a target they are those that x reaches.
    """

    def __call__(self, x: SparseTensor, target: Target | None = None) -> SparseTensor:
        return ops.pool_transpose3d(sparse_input(self, x), target, kernel_size=self._spec)


class TrilinearUpsample3d(nn.Module):
    """Trilinear interpolation onto finer coordinates: layer(x, target) -> (M, C).

    The coordinates are those of `target`, at x.stride / stride; without a target they are those
    that x reaches. Voxels that x lacks do not count: the sum is divided by the weights present.

    Raises:
        ValueError: stride is outside of 1..64.
    """

    def __init__(self, stride: Triple = 2) -> None:
        super().__init__()
        self._stride = KernelSpec(1, stride, 0, 1).stride
        if max(self._stride) > 64:
            raise ValueError(f"[TrilinearUpsample3d] stride must be in 1..64, found {self._stride}")

    @property
    def stride(self) -> tuple[int, int, int]:
        """How much finer the result is, per axis."""
        return self._stride

    def __call__(self, x: SparseTensor, target: Target | None = None) -> SparseTensor:
        return ops.trilinear_upsample3d(sparse_input(self, x), target, stride=self._stride)

    def _extra_repr(self) -> str:
        return f"stride={self._stride}"


class _Global(nn.Module):
    """The base of poolings of whole batch items."""

    _run: Callable[..., mx.array]

    def __init__(self, batch_size: int | None = None) -> None:
        super().__init__()
        self._batch_size = (
            None if batch_size is None else integer(self, "batch_size", batch_size, least=0)
        )

    def __call__(self, x: SparseTensor) -> mx.array:
        return self._run(sparse_input(self, x), batch_size=self._batch_size)

    def _extra_repr(self) -> str:
        return "" if self._batch_size is None else f"batch_size={self._batch_size}"


class GlobalSumPool(_Global):
    """layer(x) -> (B, C): the sum of the rows of each batch item; 0 for an item without rows.

    batch_size: the number of batch items B; by default that of x.
    """

    _run = staticmethod(ops.global_sum_pool)


class GlobalAvgPool(_Global):
    """layer(x) -> (B, C): the mean of the rows of each batch item; 0 for an item without rows.

    batch_size: the number of batch items B; by default that of x.
    """

    _run = staticmethod(ops.global_avg_pool)


class GlobalMaxPool(_Global):
    """layer(x) -> (B, C): the maximum over the rows of each batch item, per channel.

    batch_size: the number of batch items B; by default that of x. An item without rows has no
    maximum and is a ValueError.
    """

    _run = staticmethod(ops.global_max_pool)
