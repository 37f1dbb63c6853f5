"""Activations, dropout and normalization; identity is kept; docs/ops/features.md."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from .. import _ext
from .._ext import (
    SparseTensor,
    batch_norm,
    batch_norm_act,
    batch_norm_features,
    feature_statistics,
    layer_norm,
    layer_norm_features,
    leaky_relu,
    leaky_relu_features,
    relu,
    relu_features,
    rms_norm,
    rms_norm_features,
    sigmoid,
    sigmoid_features,
    silu,
    silu_features,
    softplus,
    softplus_features,
    tanh,
    tanh_features,
)

__all__ = [
    "activation",
    "batch_norm",
    "batch_norm_act",
    "batch_norm_features",
    "dropout",
    "dropout_features",
    "feature_statistics",
    "gelu",
    "gelu_features",
    "layer_norm",
    "layer_norm_features",
    "leaky_relu",
    "leaky_relu_features",
    "relu",
    "relu_features",
    "rms_norm",
    "rms_norm_features",
    "sigmoid",
    "sigmoid_features",
    "silu",
    "silu_features",
    "softplus",
    "softplus_features",
    "tanh",
    "tanh_features",
]


def _approximate(value: Any, operation: str) -> Any:
    """True for the tanh form: a bool, "tanh" or "none"."""
    if isinstance(value, bool):
        return value
    if value in ("none", "tanh"):
        return value == "tanh"
    raise ValueError(f'[{operation}] approximate must be a bool, "none" or "tanh", got {value!r}')


def gelu(
    x: SparseTensor, *, approximate: bool | str = False, stream: mx.Stream | mx.Device | None = None
) -> SparseTensor:
    """x Phi(x); approximate (True or "tanh"): the tanh form."""
    return _ext.gelu(x, approximate=_approximate(approximate, "gelu"), stream=stream)


def gelu_features(
    feats: mx.array, *, approximate: bool | str = False, stream: mx.Stream | mx.Device | None = None
) -> mx.array:
    """`gelu` of an array."""
    return _ext.gelu_features(
        feats, approximate=_approximate(approximate, "gelu_features"), stream=stream
    )


def activation(
    array: mx.array,
    *,
    kind: str,
    approximate: bool | str = False,
    alpha: float | None = None,
    negative_slope: float = 0.01,
    **options: Any,
) -> mx.array:
    """relu, sigmoid, silu, tanh, gelu, leaky_relu or softplus of an array.

    alpha: an older name of negative_slope. Options: beta and threshold of softplus, stream.
    """
    return _ext.activation(
        array,
        kind=kind,
        approximate=_approximate(approximate, "activation"),
        negative_slope=negative_slope if alpha is None else alpha,
        **options,
    )


def _key(training: bool, key: Any) -> Any:
    """A key from Python's generator, which mx.random.seed sets; MLX's C++ side has another one."""
    if key is not None or not training:
        return key
    return mx.random.randint(0, (1 << 31) - 1, (2,)).astype(mx.uint32)


def dropout(
    x: SparseTensor,
    p: float = 0.5,
    *,
    training: bool = True,
    key: mx.array | None = None,
    stream: mx.Stream | mx.Device | None = None,
) -> SparseTensor:
    """Sets values to 0 with probability p, divides others by 1 - p; x itself when not training."""
    return _ext.dropout(x, p, training=training, key=_key(training, key), stream=stream)


def dropout_features(
    x: mx.array,
    p: float = 0.5,
    *,
    training: bool = True,
    key: mx.array | None = None,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """`dropout` of an array."""
    return _ext.dropout_features(x, p, training=training, key=_key(training, key), stream=stream)
