"""Convolution modules.

Weights are (C_out, Kx, Ky, Kz, C_in), uniform in +-sqrt(1 / (C_in * K)); biases start at 0.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NoReturn

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import KernelSpec, SparseTensor
from ..core._checks import (
    flag,
    integer,
    one_of,
    parameter_shape,
    positive,
    sparse_input,
)
from ._linear import Packable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.types import Target, Triple
    from ._features import BatchNorm


class _Conv(Packable):
    """The base of all convolutions: checked arguments, weight, bias, call, repr."""

    _run: Callable[..., SparseTensor]  # the operation
    _takes: tuple[str, ...] = ("stride", "padding", "dilation")  # beside kernel_size
    _kind: str | None = None  # kind of ops.conv_norm; None if the norm is a separate operation

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
                f"and out_channels {out_channels}, found {groups}"
            )
        self._spec, self._groups, self._channels = spec, groups, (in_channels, out_channels)
        inside = in_channels // groups
        bound = math.sqrt(1 / (inside * spec.volume))
        self.weight = mx.random.uniform(
            -bound, bound, parameter_shape(self, out_channels, *spec.size, inside)
        )
        if flag(self, "bias", bias):
            self.bias = mx.zeros((out_channels,))

    @property
    def in_channels(self) -> int:
        """The channels of the input."""
        return self._channels[0]

    @property
    def out_channels(self) -> int:
        """The channels of the result."""
        return self._channels[1]

    def _arguments(self) -> dict[str, float | str]:
        """Further arguments of the operation."""
        return {}

    def _convolve(self, x: SparseTensor, **options: Target | None) -> SparseTensor:
        """The operation `_run` on x, with the sizes of the kernel that it takes."""
        s = self._spec
        sizes = {"stride": s.stride, "padding": s.padding, "dilation": s.dilation}
        return self._run(
            sparse_input(self, x, self._channels[0]),
            self._weight(),
            self.get("bias"),
            kernel_size=s.size,
            groups=self._groups,
            **{name: sizes[name] for name in self._takes},
            **self._arguments(),
            **options,
        )

    def with_norm(
        self,
        x: SparseTensor | Sequence[SparseTensor],
        norm: BatchNorm,
        residual: SparseTensor | None = None,
        relu: bool = False,
        coordinates: Target | None = None,
    ) -> SparseTensor:
        """relu(norm(layer(x)) + residual); in evaluation mode one pass over memory on the CPU.

        Of several tensors on the same coordinates the channels are taken side by side.
        """
        given = {} if coordinates is None else {"coordinates": coordinates}
        if self.training or norm.training or "running_mean" not in norm or self._kind is None:
            joined = ops.cat(x) if isinstance(x, (list, tuple)) else x
            return norm(self(joined, **given), residual, relu)
        s = self._spec
        if not isinstance(x, (list, tuple)):
            x = sparse_input(self, x, self._channels[0])
        return ops.conv_norm(
            x,
            self._weight(),
            self.get("bias"),
            kind=self._kind,
            mean=norm.running_mean,
            var=norm.running_var,
            norm_weight=norm.get("weight"),
            norm_bias=norm.get("bias"),
            eps=norm._eps,
            residual=residual,
            relu=relu,
            kernel_size=s,
            groups=self._groups,
            coordinates=coordinates,
            order=getattr(self, "_order", "sorted"),
        )

    @property
    def spec(self) -> KernelSpec:
        """Size, stride, padding and dilation of the kernel."""
        return self._spec

    @property
    def groups(self) -> int:
        """The number of groups into which the channels are split."""
        return self._groups

    def _extra_repr(self) -> str:
        s = self._spec
        return (
            f"{self._channels[0]}, {self._channels[1]}, kernel_size={tuple(s.size)}, "
            f"stride={tuple(s.stride)}, padding={tuple(s.padding)}, dilation={tuple(s.dilation)}, "
            f"groups={self._groups}, bias={'bias' in self}"
        )


class _Reaching(_Conv):
    """A convolution whose output may be every cell that its kernel reaches."""

    _support, _order = "floor", "sorted"
    _reached_kind: str

    def _reach(self, support: str, order: str) -> None:
        self._support = one_of(self, "support", support, ("floor", "reached"))
        self._order = one_of(self, "order", order, ("sorted", "spconv"))
        if support == "reached":
            self._kind = self._reached_kind

    def _arguments(self) -> dict[str, float | str]:
        return {"support": self._support, "order": self._order}

    def _extra_repr(self) -> str:
        reached = "" if self._support == "floor" else f", support={self._support!r}"
        return super()._extra_repr() + reached


class Conv3d(_Reaching):
    """Sparse convolution with a stride: layer(x) -> (M, out_channels) at x.stride * stride.

    y[o] = bias + sum over offsets k of weight[k] x[o * stride + k * dilation - padding]

    The output rows are the coordinates of x divided by the stride, each once.
    `layer(x, coordinates)` computes the rows of other coordinates: a SparseTensor, a key of x's
    manager, or an array (M, 4).

    Args:
        kernel_size: One integer or one per axis. An odd size is centered on the output row, an even
            size begins at it.
        padding: Shifts the kernel and may be negative. PyTorch's padding p is p - (size - 1) // 2
            here, so that PyTorch's usual padding of an odd kernel is 0.
        groups: The channels are split into so many groups; groups = in_channels = out_channels is a
            depthwise convolution.
        support: "reached" computes every cell that the kernel reaches, inside of `x.bounds`, as
            spconv does; padding is then that of PyTorch. `ops.conv3d` says more.
        order: Of the rows of a reached support, "sorted" or "spconv".

    Raises:
        TypeError: x is not a SparseTensor, or a size is not an integer.
        ValueError: groups does not divide the channels, or x has other channels.

    Examples:
        >>> from mlx_lattice import nn, samples
        >>> x = samples.tensor()  # 6 rows of 4 channels
        >>> y = nn.Conv3d(4, 8, kernel_size=2, stride=2)(x)
        >>> y.shape, y.stride
        ((4, 8), (2, 2, 2))
    """

    _run = staticmethod(ops.conv3d)
    _kind: str | None = "forward"
    _reached_kind = "reached"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple = 3,
        stride: Triple = 1,
        padding: Triple = 0,
        dilation: Triple = 1,
        groups: int = 1,
        bias: bool = True,
        support: str = "floor",
        order: str = "sorted",
    ) -> None:
        spec = KernelSpec(kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, spec, groups, bias)
        self._reach(support, order)
        if support == "floor":
            _warn_of_padding(self)

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


class SubmConv3d(_Conv):
    """Submanifold convolution: layer(x) -> (N, out_channels) on the coordinates of x.

    y[o] = bias + sum over offsets k of weight[k] x[o + k * dilation], for the rows o of x

    Args:
        kernel_size: Odd on each axis, since the kernel is centered on its row.

    Raises:
        ValueError: kernel_size is even on some axis, or x has other channels.
    """

    _run = staticmethod(ops.subm_conv3d)
    _kind: str | None = "submanifold"
    _takes = ("dilation",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple = 3,
        dilation: Triple = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        spec = KernelSpec(kernel_size, 1, 0, dilation)
        if not spec.is_centered_submanifold:
            raise ValueError(
                f"[{type(self).__name__}] needs an odd kernel_size on each axis, "
                f"found {tuple(spec.size)}"
            )
        super().__init__(in_channels, out_channels, spec, groups, bias)

    def __call__(self, x: SparseTensor) -> SparseTensor:
        return self._convolve(x)


class ConvTranspose3d(_Reaching):
    """Transposed convolution: layer(x) -> (M, out_channels) at x.stride / stride.

    y[i * stride + k * dilation - padding] += weight[k] x[i], and the bias once per output row

    The output rows are those that x reaches. `layer(x, coordinates)` computes the rows of a finer
    tensor instead, which is the way back up in a U-Net.

    Raises:
        ValueError: x is at the finest level already, so that its stride cannot be divided, or it
            has other channels.
    """

    _run: Callable[..., SparseTensor] = staticmethod(ops.conv_transpose3d)
    _kind: str | None = "transposed"
    _reached_kind = "reached_transposed"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple = 2,
        stride: Triple = 2,
        padding: Triple = 0,
        dilation: Triple = 1,
        groups: int = 1,
        bias: bool = True,
        support: str = "floor",
        order: str = "sorted",
    ) -> None:
        spec = KernelSpec(kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, spec, groups, bias)
        self._reach(support, order)

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


class GenerativeConvTranspose3d(_Conv):
    """Transposed convolution that makes its rows: one per input row and kernel offset.

    y[i * stride + k] += weight[k] x[i]; layer(x) -> (M, out_channels) at x.stride / stride

    With kernel_size = stride, as by default, each voxel becomes its stride^3 children. Networks
    that grow a scene prune the children that they do not want with `ops.prune_mask`.
    """

    _run = staticmethod(ops.generative_conv_transpose3d)
    _kind: str | None = "generative"
    _takes = ("stride",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Triple = 2,
        stride: Triple = 2,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        spec = KernelSpec(kernel_size, stride, 0, 1)
        super().__init__(in_channels, out_channels, spec, groups, bias)

    def __call__(self, x: SparseTensor, coordinates: Target | None = None) -> SparseTensor:
        return self._convolve(x, coordinates=coordinates)


_warned = False


def _warn_of_padding(conv: Conv3d) -> None:
    """Says once that an odd kernel needs no padding, because here it is centered already."""
    global _warned
    spec = conv.spec
    usual = any(
        k % 2 == 1 and k > 1 and p == k // 2 and s > 1
        for k, s, p in zip(spec.size, spec.stride, spec.padding)
    )
    if usual and not _warned:
        _warned = True
        warnings.warn(
            f"[{type(conv).__name__}] kernel_size={tuple(spec.size)}, stride={tuple(spec.stride)},"
            f" padding={tuple(spec.padding)}: an odd kernel is centered already, so that this"
            " padding shifts it away from its output row. Write padding=0 for what PyTorch does"
            " with padding = kernel_size // 2; docs/ops/conv.md explains it.",
            UserWarning,
            stacklevel=3,
        )


class _Normalized(nn.Module):
    """Divides by sqrt(conv(1, W^2) + eps), so that rows with few neighbors are not weaker."""

    def __init__(self, *args: object, eps: float = 1e-8, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.eps = positive(self, "eps", eps)

    def _arguments(self) -> dict[str, float | str]:
        return {"eps": self.eps}

    @property
    def to_quantized(self) -> NoReturn:
        """Absent: the norm needs W^2, so that mlx.nn.quantize leaves the module as it is."""
        raise AttributeError(f"{type(self).__name__} has no packed form")

    def _extra_repr(self) -> str:
        return f"{super()._extra_repr()}, eps={self.eps}"


class NormalizedSubmConv3d(_Normalized, SubmConv3d):
    """SubmConv3d whose result is divided by sqrt(conv(1, weight^2) + eps), per row and channel.

    Rows at the border of the scene have fewer neighbors; the division keeps them from being weaker.
    Arguments are those of SubmConv3d, and eps, a small positive number.
    """

    _run = staticmethod(ops.normalized_subm_conv3d)
    _kind = None


class NormalizedConvTranspose3d(_Normalized, ConvTranspose3d):
    """ConvTranspose3d whose result is divided by sqrt(conv(1, weight^2) + eps).

    Arguments are those of ConvTranspose3d, and eps, a small positive number.
    """

    _run = staticmethod(ops.normalized_conv_transpose3d)
    _kind = None


class NormalizedGenerativeConvTranspose3d(_Normalized, GenerativeConvTranspose3d):
    """GenerativeConvTranspose3d whose result is divided by sqrt(conv(1, weight^2) + eps).

    Arguments are those of GenerativeConvTranspose3d, and eps, a small positive number.
    """

    _run = staticmethod(ops.normalized_generative_conv_transpose3d)
    _kind = None
