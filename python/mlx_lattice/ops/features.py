"""Activations, dropout and normalization; identity is kept; docs/ops/features.md."""

import mlx.core as mx

from .. import _ext
from .._ext import (
    activation,
    batch_norm,
    batch_norm_act,
    batch_norm_features,
    feature_statistics,
    gelu,
    gelu_features,
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


def _key(training, key):
    """A key from Python's generator, which mx.random.seed sets; MLX's C++ side has another one."""
    if key is not None or not training:
        return key
    return mx.random.randint(0, (1 << 31) - 1, (2,)).astype(mx.uint32)


def dropout(x, p=0.5, *, training=True, key=None, stream=None):
    """Sets values to 0 with probability p, divides others by 1 - p; x itself when not training."""
    return _ext.dropout(x, p, training=training, key=_key(training, key), stream=stream)


def dropout_features(x, p=0.5, *, training=True, key=None, stream=None):
    """`dropout` of an array."""
    return _ext.dropout_features(x, p, training=training, key=_key(training, key), stream=stream)
