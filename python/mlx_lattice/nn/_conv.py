"""Convolution modules and Linear.

Weights are (C_out, Kx, Ky, Kz, C_in), uniform in +-sqrt(1 / (C_in * K)); biases start at 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import KernelSpec, SparseTensor
from ._checks import checked_input, integer, parameter_shape, told, warn_of_padding

if TYPE_CHECKING:
    from .._types import Rows, Target
    from ..core import QuantizedWeight


class _Packable(nn.Module):
    """A module whose weights can be packed."""

    def to_quantized(
        self,
        group_size: int | None = None,
        bits: int | None = None,
        mode: str = "affine",
        quantize_input: bool = False,
    ) -> Any:
        """The module with packed weights; what mlx.nn.quantize calls."""
        from ._quantized import quantized_form

        return quantized_form(self, group_size, bits, mode, quantize_input)


class _Conv(_Packable):
    """What all convolutions share: checked arguments, weight, bias, call, repr."""

    _run: Any  # the operation
    _takes: tuple[str, ...] = ("stride", "padding", "dilation")  # beside kernel_size

    def __init__(
        self, in_channels: int, out_channels: int, spec: KernelSpec, groups: int, bias: bool
    ) -> None:
        super().__init__()
        in_channels = integer(self, "in_channels", in_channels)
        out_channels = integer(self, "out_channels", out_channels)
        groups = integer(self, "groups", groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"[{type(self).__name__}] groups must divide in_channels {in_channels} "
                f"and out_channels {out_channels}, "
                f"got {groups}"
            )
        self._spec, self._groups, self._channels = spec, groups, (in_channels, out_channels)
        inside = in_channels // groups
        bound = math.sqrt(1 / (inside * spec.volume))
        self.weight = mx.random.uniform(
            -bound, bound, parameter_shape(self, out_channels, *spec.size, inside)
        )
        if bias:
            self.bias = mx.zeros((out_channels,))

    def _weight(self) -> mx.array | QuantizedWeight:
        """What the operation takes as weight."""
        return self.weight

    def _checked(self, x: SparseTensor) -> SparseTensor:
        """x, if the module can take it."""
        return checked_input(self, x, self._channels[0])

    def _arguments(self) -> dict[str, Any]:
        """Further arguments of the operation."""
        return {}

    def _convolve(self, x: SparseTensor, **options: Any) -> SparseTensor:
        """The operation `_run` on x, with the sizes of the kernel that it takes."""
        s = self._spec
        sizes = {"stride": s.stride, "padding": s.padding, "dilation": s.dilation}
        options |= {name: sizes[name] for name in self._takes} | self._arguments()
        return self._run(
            self._checked(x),
            self._weight(),
            self.get("bias"),
            kernel_size=s.size,
            groups=self._groups,
            **options,
        )

    @property
    def spec(self) -> KernelSpec:
        """The KernelSpec."""
        return self._spec

    @property
    def groups(self) -> int:
        return self._groups

    def _extra_repr(self) -> str:
        s = self._spec
        return (
            f"{self._channels[0]}, {self._channels[1]}, kernel_size={tuple(s.size)}, "
            f"stride={tuple(s.stride)}, padding={tuple(s.padding)}, dilation={tuple(s.dilation)}, "
            f"groups={self._groups}, bias={'bias' in self}"
        )


class Conv3d(_Conv):
    """Sparse convolution; the output stride is x.stride * stride.

    A second argument of the call gives the output coordinates.
    """

    _run = staticmethod(ops.conv3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int] = 3,
        stride: int | tuple[int, int, int] = 1,
        padding: int | tuple[int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            KernelSpec(kernel_size, stride, padding, dilation),
            groups,
            bias,
        )
        warn_of_padding(self, self._spec)

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


class SubmConv3d(_Conv):
    """Submanifold convolution: the output has the input's coordinates. Odd sizes only."""

    _run = staticmethod(ops.subm_conv3d)
    _takes = ("dilation",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int] = 3,
        dilation: int | tuple[int, int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        spec = KernelSpec(kernel_size, 1, 0, dilation)
        if not spec.is_centered_submanifold:
            raise ValueError(
                f"[{type(self).__name__}] needs an odd kernel_size on each axis, "
                f"got {tuple(spec.size)}"
            )
        super().__init__(in_channels, out_channels, spec, groups, bias)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self._convolve(x)


class ConvTranspose3d(_Conv):
    """Transposed convolution; the output stride is x.stride / stride.

    A second argument of the call gives the output coordinates.
    """

    _run = staticmethod(ops.conv_transpose3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int] = 2,
        stride: int | tuple[int, int, int] = 2,
        padding: int | tuple[int, int, int] = 0,
        dilation: int | tuple[int, int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            KernelSpec(kernel_size, stride, padding, dilation),
            groups,
            bias,
        )

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


class GenerativeConvTranspose3d(_Conv):
    """Transposed convolution that makes its support: one output row per input row and offset."""

    _run = staticmethod(ops.generative_conv_transpose3d)
    _takes = ("stride",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int, int] = 2,
        stride: int | tuple[int, int, int] = 2,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, KernelSpec(kernel_size, stride, 0, 1), groups, bias
        )

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


class _Normalized(nn.Module):
    """Divides by sqrt(conv(1, W^2) + eps), so that rows with few neighbors are not weaker."""

    def __init__(self, *args: Any, eps: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 0 < eps < math.inf:
            raise ValueError(f"[{type(self).__name__}] eps must be > 0 and finite, got {eps}")
        self._eps = eps

    def _arguments(self) -> dict[str, Any]:
        return {"eps": self._eps}

    @property
    def to_quantized(self, *args: Any, **kwargs: Any) -> Any:
        """Absent: the norm needs W^2, so that mlx.nn.quantize leaves the module as it is."""
        raise AttributeError(f"{type(self).__name__} has no packed form")

    def _extra_repr(self) -> str:
        return f"{super()._extra_repr()}, eps={self._eps}"


class NormalizedSubmConv3d(_Normalized, SubmConv3d):
    _run = staticmethod(ops.normalized_subm_conv3d)


class NormalizedConvTranspose3d(_Normalized, ConvTranspose3d):
    _run = staticmethod(ops.normalized_conv_transpose3d)


class NormalizedGenerativeConvTranspose3d(_Normalized, GenerativeConvTranspose3d):
    _run = staticmethod(ops.normalized_generative_conv_transpose3d)


class Linear(_Packable):
    """y = x W^T + bias on the features of a sparse tensor, or on an (N, C) array."""

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        in_channels = integer(self, "in_channels", in_channels)
        out_channels = integer(self, "out_channels", out_channels)
        self._channels = in_channels, out_channels
        bound = math.sqrt(1 / in_channels)
        shape = parameter_shape(self, out_channels, in_channels)
        self.weight = mx.random.uniform(-bound, bound, shape)
        if bias:
            self.bias = mx.zeros((out_channels,))

    def _weight(self) -> mx.array | QuantizedWeight:
        return self.weight

    def __call__(self, x: Rows) -> Rows:
        if not isinstance(x, (mx.array, SparseTensor)):
            raise TypeError(
                f"[{type(self).__name__}] x must be a SparseTensor or an array (N, C), found"
                f" {told(x)}"
            )
        checked_input(self, x, self._channels[0], arrays=True)
        run = ops.linear_features if isinstance(x, mx.array) else ops.linear
        return run(x, self._weight(), self.get("bias"))

    def _extra_repr(self) -> str:
        return f"{self._channels[0]}, {self._channels[1]}, bias={'bias' in self}"
