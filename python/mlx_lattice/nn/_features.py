"""Activations, dropout and normalization of a SparseTensor or an (N, C) array.

A SparseTensor keeps the identity of its coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from .. import _ext, ops
from ..core import SparseTensor
from ..core._checks import (
    flag,
    integer,
    number,
    parameter_shape,
    positive,
    rows_input,
    share,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx.nn import Module
    from typing_extensions import Self

    from ..core.types import Rows


def _moved(
    old_mean: mx.array, old_var: mx.array, mean: mx.array, var: mx.array, m: float, wider: float
) -> tuple[mx.array, mx.array]:
    """Running statistics after a step; var is divided by n, the running one by n - 1."""
    return (1 - m) * old_mean + m * mean, (1 - m) * old_var + m * var * wider


def _on_rows(module: Module, x: Rows, run: Callable[[mx.array], mx.array]) -> Rows:
    """run on the features of a tensor, or on an array."""
    rows_input(module, x)
    return run(x) if isinstance(x, mx.array) else x.with_feats(run(x.feats))


class _Activation(nn.Module):
    """An activation of `ops.activation` on each value of a SparseTensor or an array."""

    _kind = ""

    def _options(self) -> dict[str, Any]:
        return {}

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.activation(f, kind=self._kind, **self._options()))

    def _extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._options().items())


class ReLU(_Activation):
    """max(x, 0) of each value of a SparseTensor or an array."""

    _kind = "relu"


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)) of each value of a SparseTensor or an array."""

    _kind = "sigmoid"


class SiLU(_Activation):
    """x / (1 + exp(-x)) of each value of a SparseTensor or an array."""

    _kind = "silu"


class Tanh(_Activation):
    """tanh(x) of each value of a SparseTensor or an array."""

    _kind = "tanh"


class GELU(_Activation):
    """x Phi(x) of each value of a SparseTensor or an array, Phi the normal distribution function.

    approx, as in mlx.nn.GELU: False, "none" or "precise" for this; True or "tanh" for
    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); "fast" for x sigmoid(1.702 x).
    """

    _kind = "gelu"

    def __init__(self, approx: bool | str = "none") -> None:
        super().__init__()
        words = ("none", "precise", "tanh", "fast")
        if not isinstance(approx, bool) and not (isinstance(approx, str) and approx in words):
            raise TypeError(
                f"[GELU] approx must be True, False or one of {', '.join(words)}, found "
                f"{told(approx)}"
            )
        self.approx = approx

    def _options(self) -> dict[str, Any]:
        return {"approximate": self.approx}


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope * x, of each value of a SparseTensor or an array."""

    _kind = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self._negative_slope = number(
            self, "negative_slope", negative_slope, high_included=False, low_included=False
        )

    def _options(self) -> dict[str, Any]:
        return {"negative_slope": self._negative_slope}


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta of each value; x itself where beta x > threshold."""

    _kind = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self._beta = positive(self, "beta", beta)
        self._threshold = number(self, "threshold", threshold)

    def _options(self) -> dict[str, Any]:
        return {"beta": self._beta, "threshold": self._threshold}


class Dropout(nn.Module):
    """In training each value is 0 with probability p, otherwise divided by 1 - p.

    In evaluation mode, after `model.eval()`, the values stay as they are.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self._p = share(self, "p", p)

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.dropout_features(f, self._p, training=self.training))

    def _extra_repr(self) -> str:
        return f"p={self._p}"


class BatchNorm(nn.Module):
    """Normalizes each channel over all rows of all batch items: (N, C) -> (N, C).

    y = (x - mean) / sqrt(var + eps) * weight + bias

    In training mean and var are those of the rows. Running statistics are kept as in
    `mlx.nn.BatchNorm`: running = (1 - momentum) * running + momentum * statistics, with the
    variance divided by N - 1; evaluation mode uses them. weight and bias are learned if `affine`.

    Raises:
        ValueError: In training x has one row, whose variance says nothing.
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
        self._eps = number(self, "eps", eps, 0, high_included=False)
        self._momentum = number(self, "momentum", momentum, 0, 1)
        self._track = flag(self, "track_running_stats", track_running_stats)
        if flag(self, "affine", affine):
            self.weight = mx.ones((num_features,))
            self.bias = mx.zeros((num_features,))
        if self._track:
            self.running_mean = mx.zeros((num_features,))
            self.running_var = mx.ones((num_features,))
            self.freeze(keys=["running_mean", "running_var"], recurse=False)

    def unfreeze(
        self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False
    ) -> Self:
        """As mlx.nn.Module.unfreeze, except that running statistics stay frozen."""
        super().unfreeze(recurse=recurse, keys=keys, strict=strict)
        if self._track:
            self.freeze(keys=["running_mean", "running_var"], recurse=False)
        return self

    def __call__(self, x: Rows, residual: Rows | None = None, relu: bool = False) -> Rows:
        """relu(norm(x) + residual) in one pass; residual has x's kind, shape and coordinates."""
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
        return _on_rows(self, x, lambda f: self._normalize(f, added, relu))

    def _normalize(self, f: mx.array, residual: mx.array | None, relu: bool) -> mx.array:
        mean = var = None
        if self._track and not self.training:
            mean, var = self.running_mean, self.running_var
        n = f.shape[0]
        if self.training and n == 1:
            raise ValueError("[BatchNorm] training requires more than one row, found 1")
        y, mean, var = ops.batch_norm_act(
            f,
            self.get("weight"),
            self.get("bias"),
            mean=mean,
            var=var,
            eps=self._eps,
            residual=residual,
            relu=relu,
        )
        if self.training and self._track and n > 1:
            m = self._momentum
            arrays = (self.running_mean, self.running_var, mean, var)
            wider = n / (n - 1)
            self.running_mean, self.running_var = (
                _ext.running_statistics(arrays, m, wider)
                if _ext.on_gpu()
                else _moved(*arrays, m, wider)
            )
        return y

    def _extra_repr(self) -> str:
        return (
            f"{self._channels}, eps={self._eps}, momentum={self._momentum}, "
            f"affine={'weight' in self}, "
            f"track_running_stats={self._track}"
        )


class LayerNorm(nn.Module):
    """Normalizes each row over its channels: (N, dims) -> (N, dims).

    y = (x - mean of the row) / sqrt(var of the row + eps) * weight + bias

    weight and bias are learned if `affine`; bias=False leaves out the bias alone.
    """

    def __init__(
        self, dims: int, eps: float = 1e-5, affine: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        self._channels = integer(self, "dims", dims)
        parameter_shape(self, self._channels)
        self._eps = positive(self, "eps", eps)
        if flag(self, "affine", affine):
            self.weight = mx.ones((self._channels,))
            if flag(self, "bias", bias):
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
    """Divides each row by the root of its mean square: x / sqrt(mean(x^2) + eps) * weight."""

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__()
        self._channels = integer(self, "dims", dims)
        parameter_shape(self, self._channels)
        self._eps = positive(self, "eps", eps)
        self.weight = mx.ones((self._channels,))

    def __call__(self, x: Rows) -> Rows:
        return _on_rows(self, x, lambda f: ops.rms_norm_features(f, self.weight, eps=self._eps))

    def _extra_repr(self) -> str:
        return f"{self._channels}, eps={self._eps}"
