"""Small conveniences of SparseTensor.

Len(x), -x, x * 2, x / s, comparisons, and words for names of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from .._ext import SparseTensor

FOREIGN = {
    "F": "feats",
    "C": "coords",
    "features": "feats",
    "indices": "coords",
    "feat": "feats",
    "coordinates": "coords",
    "replace_feature": "replace(feats=...)",
    "s": "stride",
    "tensor_stride": "stride",
    "dense": "to_dense()",
    "D": "coords.shape[1] - 1",
}


def _number(value: Any) -> bool:
    """A number, or an array that broadcasts over rows: shape (), (C,), (N, 1) or (N, C)."""
    return isinstance(value, (int, float, mx.array)) or type(value).__module__ == "numpy"


def _rows(x: SparseTensor, function: Callable[[mx.array], mx.array]) -> SparseTensor:
    feats = function(x.feats)
    if feats.shape != x.feats.shape:
        raise ValueError(
            f"[SparseTensor] the other operand does not broadcast to {tuple(x.feats.shape)}: the"
            f" result has shape {tuple(feats.shape)}; give a number or an array of shape (C,), (N,"
            " 1) or (N, C)"
        )
    return x.replace(feats=feats)


def _binary(name: str, function: Callable[[mx.array, Any], mx.array]) -> None:
    """Keeps what the extension does with two tensors, and adds numbers and arrays."""
    sparse = getattr(SparseTensor, name, None)

    def operator(self: SparseTensor, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            if sparse is not None:
                return sparse(self, other)
            if self.same_coords(other):
                return self.replace(feats=function(self.feats, other.feats))
            return NotImplemented
        if not _number(other):
            return NotImplemented
        value = other if isinstance(other, (int, float, mx.array)) else mx.array(other)
        return _rows(self, lambda feats: function(feats, value))

    operator.__name__ = operator.__qualname__ = name
    setattr(SparseTensor, name, operator)


def _missing(self: SparseTensor, name: str) -> Any:
    ours = FOREIGN.get(name)
    hint = f"; this library calls it `{ours}`" if ours else ""
    raise AttributeError(f"'SparseTensor' object has no attribute {name!r}{hint}")


def install() -> None:
    """Adds the conveniences to the class of the extension."""
    _binary("__add__", lambda a, b: a + b)
    _binary("__sub__", lambda a, b: a - b)
    _binary("__mul__", lambda a, b: a * b)
    _binary("__truediv__", lambda a, b: a / b)
    _binary("__pow__", lambda a, b: a**b)
    _binary("__gt__", lambda a, b: a > b)
    _binary("__ge__", lambda a, b: a >= b)
    _binary("__lt__", lambda a, b: a < b)
    _binary("__le__", lambda a, b: a <= b)
    for name, function in (
        ("__radd__", lambda a, b: b + a),
        ("__rsub__", lambda a, b: b - a),
        ("__rmul__", lambda a, b: b * a),
        ("__rtruediv__", lambda a, b: b / a),
    ):
        _binary(name, function)
    added: dict[str, Callable[..., Any]] = {
        "__neg__": lambda self: self.replace(feats=-self.feats),
        "__abs__": lambda self: self.replace(feats=mx.abs(self.feats)),
        "__len__": lambda self: self.active_count,
        # A tensor without rows is a tensor: `if x:` does not ask for its length.
        "__bool__": lambda self: True,
        "__getattr__": _missing,
    }
    for name, method in added.items():
        setattr(SparseTensor, name, method)
