"""Activations, dropout and normalization of features; docs/ops/features.md.

Each operation exists on a tensor, whose coordinates stay, and under `*_features` on an array
(N, C). Float32, float16 and bfloat16; another dtype is a ValueError. All are differentiable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx

from .. import _ext
from ..core._checks import told

if TYPE_CHECKING:
    from .._ext import SparseTensor
    from ..core.types import ArrayLike, StreamOrDevice

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


def relu(x: SparseTensor, *, stream: StreamOrDevice = None) -> SparseTensor:
    """`max(x, 0)`."""
    return _ext.relu(x, stream)


def relu_features(x: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """`relu` of an array."""
    return _ext.relu_features(x, stream)


def sigmoid(x: SparseTensor, *, stream: StreamOrDevice = None) -> SparseTensor:
    """`1 / (1 + exp(-x))`."""
    return _ext.sigmoid(x, stream)


def sigmoid_features(x: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """`sigmoid` of an array."""
    return _ext.sigmoid_features(x, stream)


def silu(x: SparseTensor, *, stream: StreamOrDevice = None) -> SparseTensor:
    """`x * sigmoid(x)`."""
    return _ext.silu(x, stream)


def silu_features(x: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """`silu` of an array."""
    return _ext.silu_features(x, stream)


def tanh(x: SparseTensor, *, stream: StreamOrDevice = None) -> SparseTensor:
    """The hyperbolic tangent of each value."""
    return _ext.tanh(x, stream)


def tanh_features(x: ArrayLike, *, stream: StreamOrDevice = None) -> mx.array:
    """`tanh` of an array."""
    return _ext.tanh_features(x, stream)


def _gelu_form(value: bool | str, operation: str, argument: str = "approximate") -> str:
    """The form of gelu that a word names: "erf", "tanh" or "fast"."""
    forms = {"none": "erf", "precise": "erf", "tanh": "tanh", "fast": "fast"}
    if isinstance(value, bool):
        return "tanh" if value else "erf"
    if isinstance(value, str) and value in forms:
        return forms[value]
    raise ValueError(
        f'[{operation}] {argument} must be a bool, "none", "precise", "tanh" or "fast", '
        f"got {told(value)}"
    )


def gelu(
    x: SparseTensor, *, approximate: bool | str = False, stream: StreamOrDevice = None
) -> SparseTensor:
    """`x * Phi(x)`, Phi the normal distribution function.

    approximate: False, "none" or "precise" for this; True or "tanh" for the tanh form; "fast" for
    `x * sigmoid(1.702 * x)`.
    """
    form = _gelu_form(approximate, "gelu")
    y = _ext.gelu(x, form == "tanh", stream)  # checks x
    return y if form != "fast" else x.with_feats(_fast_gelu(x.feats, stream))


def gelu_features(
    x: ArrayLike, *, approximate: bool | str = False, stream: StreamOrDevice = None
) -> mx.array:
    """`gelu` of an array."""
    form = _gelu_form(approximate, "gelu_features")
    y = _ext.gelu_features(x, form == "tanh", stream)
    return y if form != "fast" else _fast_gelu(mx.array(x), stream)


def _fast_gelu(x: mx.array, stream: StreamOrDevice) -> mx.array:
    return mx.multiply(x, mx.sigmoid(mx.multiply(1.702, x, stream=stream), stream=stream))


def leaky_relu(
    x: SparseTensor, *, negative_slope: float = 0.01, stream: StreamOrDevice = None
) -> SparseTensor:
    """x where x > 0, else `negative_slope * x`."""
    return _ext.leaky_relu(x, negative_slope, stream)


def leaky_relu_features(
    x: ArrayLike, *, negative_slope: float = 0.01, stream: StreamOrDevice = None
) -> mx.array:
    """`leaky_relu` of an array."""
    return _ext.leaky_relu_features(x, negative_slope, stream)


def softplus(
    x: SparseTensor, *, beta: float = 1.0, threshold: float = 20.0, stream: StreamOrDevice = None
) -> SparseTensor:
    """`log(1 + exp(beta * x)) / beta`; x itself where `beta * x > threshold`."""
    return _ext.softplus(x, beta, threshold, stream)


def softplus_features(
    x: ArrayLike, *, beta: float = 1.0, threshold: float = 20.0, stream: StreamOrDevice = None
) -> mx.array:
    """`softplus` of an array."""
    return _ext.softplus_features(x, beta, threshold, stream)


def activation(
    x: ArrayLike,
    *,
    kind: str,
    approximate: bool | str = False,
    alpha: float | None = None,
    negative_slope: float = 0.01,
    beta: float = 1.0,
    threshold: float = 20.0,
    stream: StreamOrDevice = None,
) -> mx.array:
    """The activation with the name `kind` of an array.

    kind: relu, sigmoid, silu, tanh, gelu, leaky_relu or softplus; another one is a ValueError.
    alpha: an older name of negative_slope.

    >>> import mlx.core as mx
    >>> from mlx_lattice import ops
    >>> ops.activation(mx.array([-1.0, 2.0]), kind="relu").tolist()
    [0.0, 2.0]
    """
    slope = negative_slope if alpha is None else alpha
    form = _gelu_form(approximate, "activation")
    y = _ext.activation(x, kind, form == "tanh", slope, beta, threshold, stream)
    return y if kind != "gelu" or form != "fast" else _fast_gelu(mx.array(x), stream)


def _key(training: bool, key: ArrayLike | None) -> ArrayLike | None:
    """A key from Python's generator, which mx.random.seed sets; MLX's C++ side has another one."""
    if key is not None or training is not True:  # the extension checks that it is a bool
        return key
    return mx.random.randint(0, (1 << 31) - 1, (2,)).astype(mx.uint32)


def dropout(
    x: SparseTensor,
    p: float = 0.5,
    *,
    training: bool = True,
    key: ArrayLike | None = None,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Sets values to 0 with probability p and divides the others by 1 - p.

    Without `training` the features stay as they are. key: of `mx.random.key`; by default one that
    `mx.random.seed` determines. ValueError unless 0 <= p < 1.
    """
    return _ext.dropout(x, p, training, _key(training, key), stream)


def dropout_features(
    x: ArrayLike,
    p: float = 0.5,
    *,
    training: bool = True,
    key: ArrayLike | None = None,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`dropout` of an array."""
    return _ext.dropout_features(x, p, training, _key(training, key), stream)


def feature_statistics(
    feats: ArrayLike, *, stream: StreamOrDevice = None
) -> tuple[mx.array, mx.array]:
    """(mean, variance) of each channel over the rows of (N, C), float32 (C,); divided by N.

    >>> from mlx_lattice import ops
    >>> mean, var = ops.feature_statistics([[1.0], [3.0]])
    >>> mean.item(), var.item()
    (2.0, 1.0)
    """
    return _ext.feature_statistics(feats, stream)


def batch_norm(
    x: SparseTensor,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    var: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """`(x - mean) / sqrt(var + eps) * scale + bias`, all of shape (C,).

    Without mean and var those of the rows are taken, and the gradient goes through them.
    """
    return _ext.batch_norm(x, scale, bias, mean, var, eps, stream)


def batch_norm_features(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    var: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`batch_norm` of an array."""
    return _ext.batch_norm_features(x, scale, bias, mean, var, eps, stream)


def batch_norm_act(
    feats: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    mean: ArrayLike | None = None,
    var: ArrayLike | None = None,
    eps: float = 1e-5,
    residual: ArrayLike | None = None,
    relu: bool = False,
    stream: StreamOrDevice = None,
) -> tuple[mx.array, mx.array, mx.array]:
    """(`relu(batch_norm(feats) + residual)`, mean, var) in one pass.

    The statistics are those that were used; they carry no gradient.

    Args:
        feats: (N, C).
        weight, bias, mean, var, eps: As in `batch_norm`.
        residual: Rows (N, C) that are added before the activation.
        relu: Whether a ReLU follows.
        stream: Stream or device of MLX.
    """
    return _ext.batch_norm_act(feats, weight, bias, mean, var, eps, residual, relu, stream)


def layer_norm(
    x: SparseTensor,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Each row minus its mean, divided by `sqrt(var + eps)`; then `* scale + bias`, both (C,)."""
    return _ext.layer_norm(x, scale, bias, eps, stream)


def layer_norm_features(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`layer_norm` of an array."""
    return _ext.layer_norm_features(x, scale, bias, eps, stream)


def rms_norm(
    x: SparseTensor,
    scale: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> SparseTensor:
    """Each row divided by `sqrt(mean of squares + eps)`; then `* scale`, (C,)."""
    return _ext.rms_norm(x, scale, eps, stream)


def rms_norm_features(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    stream: StreamOrDevice = None,
) -> mx.array:
    """`rms_norm` of an array.

    >>> from mlx_lattice import ops
    >>> ops.rms_norm_features([[3.0, 3.0]]).round(3).tolist()
    [[1.0, 1.0]]
    """
    return _ext.rms_norm_features(x, scale, eps, stream)
