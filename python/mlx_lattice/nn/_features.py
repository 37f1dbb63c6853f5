"""Activations, dropout and normalization of a SparseTensor or an (N, C) array.

A SparseTensor keeps the identity of its coordinates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from .. import ops
from ..core import SparseTensor
from ._checks import integer, number, parameter_shape, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx.nn import Module

    from .._types import Rows


def _on_rows(module: Module, x: Rows, run: Callable[[mx.array], mx.array]) -> Rows:
    """run on the features of a tensor, or on an array."""
    if isinstance(x, mx.array):
        return run(x)
    if not isinstance(x, SparseTensor):
        raise TypeError(
            f"[{type(module).__name__}] x must be a SparseTensor or an array (N, C), found"
            f" {told(x)}"
        )
    return x.with_feats(run(x.feats))


class _Activation(nn.Module):
    _kind = ""

    def _options(self) -> dict[str, Any]:
        return {}

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.activation(f, kind=self._kind, **self._options()))

    def _extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._options().items())


class ReLU(_Activation):
    """max(x, 0)"""

    _kind = "relu"


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))"""

    _kind = "sigmoid"


class SiLU(_Activation):
    """x sigmoid(x)"""

    _kind = "silu"


class Tanh(_Activation):
    """The hyperbolic tangent of each value, tanh(x)."""

    _kind = "tanh"


class GELU(_Activation):
    """x Phi(x); approximate: the tanh form."""

    _kind = "gelu"

    def __init__(self, approximate: bool | str = False) -> None:
        super().__init__()
        if approximate not in (True, False, "none", "tanh"):
            raise TypeError(
                f'[GELU] approximate must be a bool, "none" or "tanh", got {approximate!r}'
            )
        self._approximate = approximate in (True, "tanh")

    def _options(self) -> dict[str, Any]:
        return {"approximate": self._approximate}


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope * x"""

    _kind = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._negative_slope = number(
            self, "negative_slope", negative_slope, high_included=False, low_included=False
        )

    def _options(self) -> dict[str, Any]:
        return {"negative_slope": self._negative_slope}


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold"""

    _kind = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self._beta = number(self, "beta", beta, 0, low_included=False, high_included=False)
        self._threshold = number(self, "threshold", threshold)

    def _options(self) -> dict[str, Any]:
        return {"beta": self._beta, "threshold": self._threshold}


class Dropout(nn.Module):
    """In training each value is 0 with probability p, otherwise divided by 1 - p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = number(self, "p", p, 0, 1, high_included=False)

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.dropout_features(f, self._p, training=self.training))

    def _extra_repr(self) -> str:
        return f"p={self._p}"


class BatchNorm(nn.Module):
    """Normalizes each channel over all rows of all batch items.

    Running statistics are kept as in `mlx.nn.BatchNorm`:
    running = (1 - momentum) * running + momentum * statistics, with the variance divided by N - 1.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        num_features = integer(self, "num_features", num_features)
        self._channels = num_features
        parameter_shape(self, num_features)
        self._eps = number(self, "eps", eps, 0, math.inf, high_included=False)
        self._momentum = number(self, "momentum", momentum, 0, 1)
        self._track = bool(track_running_stats)
        if affine:
            self.weight = mx.ones((num_features,))
            self.bias = mx.zeros((num_features,))
        if self._track:
            self.running_mean = mx.zeros((num_features,))
            self.running_var = mx.ones((num_features,))
            self.freeze(keys=["running_mean", "running_var"], recurse=False)

    def unfreeze(self, *args: Any, **kwargs: Any) -> BatchNorm:
        """Running statistics stay frozen."""
        super().unfreeze(*args, **kwargs)
        if self._track:
            self.freeze(keys=["running_mean", "running_var"], recurse=False)
        return self

    def __call__(
        self,
        x: Rows,
        residual: Rows | None = None,
        relu: bool = False,
        only_reader: bool = False,
    ) -> Rows:
        """relu(norm(x) + residual) in one pass; residual has x's kind, shape and coordinates.

        only_reader: nobody else reads x. In evaluation mode the convolution on the CPU that makes x
        then normalizes in its own pass.
        """
        if residual is not None and not isinstance(residual, mx.array):
            if not isinstance(residual, SparseTensor) or not isinstance(x, SparseTensor):
                raise TypeError(
                    f"[BatchNorm] residual must be of x's kind, found {told(residual)} for"
                    f" {told(x)}"
                )
            if not x.same_coords(residual):
                raise ValueError("[BatchNorm] residual must share x's coordinates")
            added: mx.array | None = residual.feats
        else:
            added = residual
        return _on_rows(self, x, lambda f: self._normalize(f, added, relu, only_reader))

    def _normalize(
        self, f: mx.array, residual: mx.array | None, relu: bool, only_reader: bool
    ) -> mx.array:
        mean = var = None
        if self._track and not self.training:
            mean, var = self.running_mean, self.running_var
        n = f.shape[0]
        if self.training and n == 1:
            raise ValueError("[BatchNorm] training requires more than one row, got 1")
        y, mean, var = ops.batch_norm_act(
            f,
            self.get("weight"),
            self.get("bias"),
            mean=mean,
            var=var,
            eps=self._eps,
            residual=residual,
            relu=relu,
            only_reader=only_reader,
        )
        if self.training and self._track and n > 1:
            m = self._momentum
            self.running_mean = (1 - m) * self.running_mean + m * mean
            self.running_var = (1 - m) * self.running_var + m * var * (n / (n - 1))
        return y

    def _extra_repr(self) -> str:
        return (
            f"{self._channels}, eps={self._eps}, momentum={self._momentum}, "
            f"affine={'weight' in self}, "
            f"track_running_stats={self._track}"
        )


class LayerNorm(nn.Module):
    """Normalizes each row over its channels."""

    def __init__(
        self, dims: int, eps: float = 1e-5, affine: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        self._channels = integer(self, "dims", dims)
        parameter_shape(self, self._channels)
        self._eps = number(self, "eps", eps, 0, math.inf, high_included=False)
        if affine:
            self.weight = mx.ones((self._channels,))
            if bias:
                self.bias = mx.zeros((self._channels,))

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(
            self,
            x,
            lambda f: ops.layer_norm_features(
                f, self.get("weight"), self.get("bias"), eps=self._eps
            ),
        )

    def _extra_repr(self) -> str:
        return (
            f"{self._channels}, eps={self._eps}, affine={'weight' in self}, bias={'bias' in self}"
        )


class RMSNorm(nn.Module):
    """Divides each row by the root of its mean square."""

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__()
        self._channels = integer(self, "dims", dims)
        parameter_shape(self, self._channels)
        self._eps = number(self, "eps", eps, 0, math.inf, high_included=False)
        self.weight = mx.ones((self._channels,))

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.rms_norm_features(f, self.weight, eps=self._eps))

    def _extra_repr(self) -> str:
        return f"{self._channels}, eps={self._eps}"
