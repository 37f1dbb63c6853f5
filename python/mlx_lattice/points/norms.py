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
from ..nn._checks import integer, number, parameter_shape
from .segments import segment_expand, segment_reduce

if TYPE_CHECKING:
    from .._types import Rows

CHOICES = ("batch", "row", "instance", "group", "layer", "none")


class RowNorm(nn.LayerNorm):
    """The usual LayerNorm: each row over its channels."""

    def __call__(self, x: Rows, lengths: mx.array | None = None) -> Rows:
        return super().__call__(x)


class RaggedBatchNorm(nn.BatchNorm):
    """Normalizes each channel over all rows of all clouds, with running statistics.

    One row alone does not change the running statistics.
    """

    def __call__(  # type: ignore[override]
        self, x: mx.array, lengths: mx.array | None = None
    ) -> mx.array:
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
                f"got {self._groups}"
            )
        self._eps = number(self, "eps", eps, 0, math.inf, high_included=False)
        parameter_shape(self, self._channels)
        if affine:
            self.weight, self.bias = mx.ones((self._channels,)), mx.zeros((self._channels,))

    def __call__(self, x: mx.array, lengths: mx.array) -> mx.array:
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
    """Each channel of each cloud by itself; no weight and bias unless asked for."""

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(channels, channels, eps, affine)


class RaggedGroupNorm(_CloudNorm):
    """Each group of channels / groups channels of each cloud.

    Arguments are named: libraries differ in their order.
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
    """One mean and variance per cloud, over points and channels. (RowNorm is the norm of a row.)"""

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(channels, 1, eps, affine)


class _NoNorm(mlx.nn.Module):
    def __call__(self, x: mx.array, lengths: mx.array | None = None) -> mx.array:
        return x


def make_norm(kind: str, channels: int) -> mlx.nn.Module:
    """The norm named by `kind`."""
    if not isinstance(kind, str) or kind not in CHOICES:
        raise ValueError(f"[norm] norm must be one of {', '.join(CHOICES)}, got {kind!r}")
    if kind == "group":
        return RaggedGroupNorm(channels=channels, groups=math.gcd(8, channels))
    if kind == "instance":
        return RaggedInstanceNorm(channels, affine=True)
    makers = {"batch": RaggedBatchNorm, "row": RowNorm, "layer": RaggedLayerNorm}
    return makers[kind](channels) if kind in makers else _NoNorm()
