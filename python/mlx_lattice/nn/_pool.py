"""Pooling modules, which own no parameters. Transposed modules take a target as second argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.nn as nn

from .. import ops
from ..core import KernelSpec
from ._checks import checked_input, integer

if TYPE_CHECKING:
    import mlx.core as mx

    from .._types import Target
    from ..core import SparseTensor


class _Local(nn.Module):
    def __init__(
        self,
        kernel_size: int | tuple[int, int, int] = 2,
        stride: int | tuple[int, int, int] = 2,
        padding: int | tuple[int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
    ) -> None:
        super().__init__()
        self._spec = KernelSpec(kernel_size, stride, padding, dilation)

    @property
    def spec(self) -> KernelSpec:
        """The KernelSpec."""
        return self._spec

    def _extra_repr(self) -> str:
        s = self._spec
        return (
            f"kernel_size={tuple(s.size)}, stride={tuple(s.stride)}, padding={tuple(s.padding)}, "
            f"dilation={tuple(s.dilation)}"
        )


class Pool3d(_Local):
    """Pooling over a kernel; mode sum, avg or max."""

    def __init__(
        self,
        mode: str = "sum",
        kernel_size: int | tuple[int, int, int] = 2,
        stride: int | tuple[int, int, int] = 2,
        padding: int | tuple[int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation)
        if mode not in ("sum", "avg", "max"):
            raise ValueError(f"[{type(self).__name__}] mode must be sum, avg or max, got {mode!r}")
        self._mode = mode

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return ops.pool3d(checked_input(self, x), mode=self._mode, kernel_size=self._spec)

    def _extra_repr(self) -> str:
        return f"mode={self._mode}, {super()._extra_repr()}"


class _OneMode(Pool3d):
    _only: str

    def __init__(
        self,
        kernel_size: int | tuple[int, int, int] = 2,
        stride: int | tuple[int, int, int] = 2,
        padding: int | tuple[int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
    ) -> None:
        super().__init__(self._only, kernel_size, stride, padding, dilation)


class SumPool3d(_OneMode):
    _only = "sum"


class AvgPool3d(_OneMode):
    """Divides by the number of rows in the window."""

    _only = "avg"


class MaxPool3d(_OneMode):
    _only = "max"


class PoolTranspose3d(_Local):
    """Mean of the contributors on finer coordinates, those of `target` where it is given."""

    def __call__(self, x: SparseTensor, target: Target | None = None) -> SparseTensor:
        return ops.pool_transpose3d(checked_input(self, x), target, kernel_size=self._spec)


class TrilinearUpsample3d(nn.Module):
    """Trilinear interpolation onto finer coordinates, those of `target` where it is given."""

    def __init__(self, stride: int | tuple[int, int, int] = 2) -> None:
        super().__init__()
        self._stride = KernelSpec(1, stride, 0, 1).stride
        if max(self._stride) > 64:
            raise ValueError(f"[TrilinearUpsample3d] stride must be in 1..64, got {self._stride}")

    def __call__(self, x: SparseTensor, target: Target | None = None) -> SparseTensor:
        return ops.trilinear_upsample3d(checked_input(self, x), target, stride=self._stride)

    def _extra_repr(self) -> str:
        return f"stride={self._stride}"


class _Global(nn.Module):
    def __init__(self, batch_size: int | None = None) -> None:
        super().__init__()
        self._batch_size = (
            None if batch_size is None else integer(self, "batch_size", batch_size, least=0)
        )

    def __call__(self, x: SparseTensor) -> mx.array:
        return self._run(checked_input(self, x), batch_size=self._batch_size)

    def _extra_repr(self) -> str:
        return "" if self._batch_size is None else f"batch_size={self._batch_size}"


class GlobalSumPool(_Global):
    """(B, C): the sum of the rows of each batch item."""

    _run = staticmethod(ops.global_sum_pool)


class GlobalAvgPool(_Global):
    """(B, C): the mean of the rows of each batch item."""

    _run = staticmethod(ops.global_avg_pool)


class GlobalMaxPool(_Global):
    """(B, C): the maximum over the rows of each batch item."""

    _run = staticmethod(ops.global_max_pool)
