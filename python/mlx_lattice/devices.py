"""Where operations run: a scope for the default device, a probe, and work that starts early."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import mlx.core as mx

from ._ext import start_on_gpu

Lazy = TypeVar("Lazy")  # anything that holds arrays
_answers: dict[
    tuple[Any, ...], tuple[Any, ...]
] = {}  # key: (function, answer); the function is kept, so that its id stays its own
_MOST_ANSWERS = 256


@contextlib.contextmanager
def on(device: mx.Device | mx.DeviceType) -> Iterator[None]:
    """Makes `device` the default inside a `with` block; the old default always comes back."""
    before = mx.default_device()
    mx.set_default_device(device)
    try:
        yield
    finally:
        mx.set_default_device(before)


def _signature(value: Any) -> object:
    """What of an argument can change the answer: shapes and dtypes of arrays, values of scalars."""
    if isinstance(value, mx.array):
        return ("array", value.shape, str(value.dtype))
    if hasattr(value, "feats"):
        return (
            "tensor",
            value.feats.shape,
            str(value.feats.dtype),
            str(value.coords.dtype),
            value.stride,
        )
    if isinstance(value, (list, tuple)):
        return tuple(_signature(v) for v in value)
    return repr(value)


def _arrays(value: Any) -> list[mx.array]:
    if isinstance(value, mx.array):
        return [value]
    if hasattr(value, "feats"):
        return [value.feats]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in _arrays(v)]
    return []


def async_eval(x: Lazy) -> Lazy:
    """Starts to compute the features of `x` on the GPU while the program goes on; returns `x`.

    Geometry is made at once, on the CPU. A network that calls this after each level lets the CPU
    build the relations of the next level while the GPU computes this one. Where the default device
    is the CPU the call does nothing, because kernels and geometry share the same threads. Inside
    `mx.compile` and `mx.vmap`, where there are no values yet, the call does nothing either.
    """
    start_on_gpu(_arrays(x))
    return x


def supported_on(
    device: mx.Device | mx.DeviceType, fn: Callable[..., object], *args: object, **kwargs: object
) -> bool:
    """Whether `fn(*args, **kwargs)` runs on `device`.

    The first call runs `fn` and remembers the answer for arguments of this kind.
    """
    target = mx.Device(device) if isinstance(device, mx.DeviceType) else device
    key = (str(target), id(fn), _signature(args), _signature(tuple(sorted(kwargs.items()))))
    if key not in _answers:
        try:
            with on(target):
                mx.eval(*_arrays(fn(*args, **kwargs)))
            answer = True
        except (RuntimeError, ValueError, OverflowError):
            answer = False
        if len(_answers) >= _MOST_ANSWERS:
            _answers.clear()
        _answers[key] = (fn, answer)
    return _answers[key][1]
