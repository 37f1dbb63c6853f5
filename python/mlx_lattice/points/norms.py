"""Normalization of ragged batches; statistics in float32, biased variance, eps inside the root.

    y = (x - mean) / sqrt(var + eps) * weight + bias

| norm | mean and var over |
|---|---|
| RowNorm | the channels of one row |
| RaggedBatchNorm | all rows, per channel |
| RaggedInstanceNorm | the rows of a cloud, per channel |
| RaggedGroupNorm | the rows of a cloud and a group of channels |
| RaggedLayerNorm | the rows and channels of a cloud |

A single value has variance 0, so that y = bias. Call a norm with (x, lengths); norms that do not
need lengths ignore them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn

from .. import nn
from ..core._checks import array, finite, flag, integer, one_of, parameter_shape
from ..ops.segments import segment_expand, segment_reduce

if TYPE_CHECKING:
    from ..core.types import Rows

CHOICES = ("batch", "row", "instance", "group", "layer", "none")


class RowNorm(nn.LayerNorm):
    """The usual LayerNorm, each row over its channels: norm(x, lengths) -> (T, dims).

    lengths is accepted, as by the other norms of points, and not read.
    """

    def __call__(self, x: Rows, lengths: mx.array | None = None) -> Rows:
        return super().__call__(x)


class RaggedBatchNorm(nn.BatchNorm):
    """Normalizes each channel over all rows of all clouds: norm(x, lengths) -> (T, num_features).

    Running statistics are kept as in `nn.BatchNorm`; lengths is accepted and not read. One row
    alone becomes the bias, and does not change the running statistics.
    """

    def __call__(  # type: ignore[override]
        self, x: mx.array, lengths: mx.array | None = None
    ) -> mx.array:
        x = array(self, "x", x, "T", self._channels)
        if self.training and x.shape[0] == 1:
            y = mx.zeros_like(x) * x  # variance 0; keeps x in the graph
            return y if "bias" not in self else y + self.bias.astype(x.dtype)
        return super().__call__(x)


class _CloudNorm(mlx.nn.Module):
    """Statistics over the rows of a cloud and channels / groups channels."""

    def __init__(self, channels: int, groups: int, eps: float, affine: bool) -> None:
        super().__init__()
        self._channels = integer(self, "channels", channels)
        self._groups = integer(self, "groups", groups)
        if self._channels % self._groups:
            raise ValueError(
                f"[{type(self).__name__}] groups must divide {self._channels} channels, "
                f"found {self._groups}"
            )
        self._eps = finite(self, "eps", eps, 0)
        parameter_shape(self, self._channels)
        if flag(self, "affine", affine):
            self.weight, self.bias = mx.ones((self._channels,)), mx.zeros((self._channels,))

    def __call__(self, x: mx.array, lengths: mx.array) -> mx.array:
        x = array(self, "x", x, "T", self._channels)
        f = x.astype(mx.float32)
        f = f - self._mean(f, lengths)
        f = f * segment_expand(mx.rsqrt(self._of_cloud(f * f, lengths) + self._eps), lengths)
        if "weight" in self:
            f = f * self.weight + self.bias
        return f.astype(x.dtype)

    def _mean(self, f: mx.array, lengths: mx.array) -> mx.array:
        return segment_expand(self._of_cloud(f, lengths), lengths)

    def _of_cloud(self, f: mx.array, lengths: mx.array) -> mx.array:
        """(B, C): the mean over a cloud and a group, at each channel of the group."""
        mean = segment_reduce(f, lengths, "mean")
        if self._groups == self._channels:
            return mean
        mean = mean.reshape(mean.shape[0], self._groups, self._channels // self._groups)
        return mx.broadcast_to(mean.mean(axis=2, keepdims=True), mean.shape).reshape(
            -1, self._channels
        )

    def _extra_repr(self) -> str:
        return (
            f"{self._channels}, groups={self._groups}, eps={self._eps}, affine={'weight' in self}"
        )


class RaggedInstanceNorm(_CloudNorm):
    """Normalizes each channel of each cloud by itself: norm(x, lengths) -> (T, channels).

    lengths are the rows of each cloud, (B,). weight and bias are learned if `affine`.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> x = mx.array([[1.0], [3.0], [10.0], [30.0]])  # two clouds of two points
        >>> y = points.RaggedInstanceNorm(1)(x, mx.array([2, 2]))
        >>> [round(value, 3) for value in y[:, 0].tolist()]
        [-1.0, 1.0, -1.0, 1.0]
    """

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(channels, channels, eps, affine)


class RaggedGroupNorm(_CloudNorm):
    """Normalizes each group of channels / groups channels of each cloud.

    norm(x, lengths) -> (T, channels). Arguments must be named, because libraries differ in their
    order: RaggedGroupNorm(channels=64, groups=8).
    """

    def __init__(
        self,
        *unnamed: object,
        channels: int | None = None,
        groups: int | None = None,
        eps: float = 1e-5,
        affine: bool = True,
    ) -> None:
        if unnamed or channels is None or groups is None:
            raise TypeError(
                "[RaggedGroupNorm] channels and groups must be given by name, "
                f"RaggedGroupNorm(channels=64, groups=8), found {len(unnamed)} unnamed arguments"
            )
        super().__init__(channels, groups, eps, affine)


class RaggedLayerNorm(_CloudNorm):
    """Normalizes each cloud over its points and channels: norm(x, lengths) -> (T, channels).

    `RowNorm` is the norm of each row.
    """

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(channels, 1, eps, affine)


class _NoNorm(mlx.nn.Module):
    def __call__(self, x: mx.array, lengths: mx.array | None = None) -> mx.array:
        return x


def make_norm(kind: str, channels: int) -> mlx.nn.Module:
    """The norm named by `kind`."""
    one_of("norm", "norm", kind, CHOICES)
    if kind == "group":
        return RaggedGroupNorm(channels=channels, groups=math.gcd(8, channels))
    if kind == "instance":
        return RaggedInstanceNorm(channels, affine=True)
    makers = {"batch": RaggedBatchNorm, "row": RowNorm, "layer": RaggedLayerNorm}
    return makers[kind](channels) if kind in makers else _NoNorm()
