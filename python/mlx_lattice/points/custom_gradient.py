"""An operation of one's own with its own derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.utils import tree_unflatten

from .._trees import leaves
from ..nn._checks import told

__all__ = ["custom_sparse_op_with_grad"]

HELD = object()  # the place of an array among saved values


def custom_sparse_op_with_grad(
    forward_fn: Callable[..., Any], backward_fn: Callable[..., Any], *args: object
) -> mx.array:
    """forward_fn(*args), with backward_fn(saved, grad) as its derivative.

    forward_fn returns the output, or (output, saved). Without `saved`, the tuple of args takes its
    place. Then backward_fn returns one gradient per array of args, in order. A single gradient may
    stand alone, and None is a zero gradient.
    """
    for name, value in (("forward_fn", forward_fn), ("backward_fn", backward_fn)):
        if not callable(value):
            raise TypeError(
                f"[custom_sparse_op_with_grad] {name} must be a function, found {told(value)}"
            )
    places = [i for i, a in enumerate(args) if isinstance(a, mx.array)]
    shape: dict[str, Any] = {}  # how `saved` was built

    def filled(arrays: Any) -> Any:
        full = list(args)
        for i, a in zip(places, arrays):
            full[i] = a
        return full

    @mx.custom_function
    def run(*arrays: Any) -> Any:
        result = forward_fn(*filled(arrays))
        output, saved = result if isinstance(result, tuple) else (result, None)
        shape["given"] = saved is not None
        found: list[tuple[str, Any]] = leaves({"saved": saved}) if saved is not None else []
        shape["leaves"] = [
            (name, HELD if isinstance(leaf, mx.array) else leaf) for name, leaf in found
        ]
        return [output, *(leaf for _, leaf in found if isinstance(leaf, mx.array))]

    @run.vjp
    def run_vjp(arrays: Any, cotangents: Any, outputs: Any) -> Any:
        arrays = arrays if isinstance(arrays, (tuple, list)) else (arrays,)
        saved = tuple(filled(arrays))
        if shape["given"]:
            held = iter(outputs[1:])
            saved = tree_unflatten(
                [(n, next(held) if leaf is HELD else leaf) for n, leaf in shape["leaves"]]
            )["saved"]
        grads = backward_fn(saved, cotangents[0])
        grads = list(grads) if isinstance(grads, (tuple, list)) else [grads]
        if len(grads) != len(arrays):
            raise ValueError(
                f"[custom_sparse_op_with_grad] backward_fn must return {len(arrays)} gradients, "
                f"got {len(grads)}"
            )
        for i, (a, g) in enumerate(zip(arrays, grads)):
            if g is not None and (not isinstance(g, mx.array) or g.shape != a.shape):
                found = g.shape if isinstance(g, mx.array) else type(g).__name__
                raise ValueError(
                    "[custom_sparse_op_with_grad] backward_fn must return gradients of the shapes"
                    f" of args: gradient {i} must have shape {a.shape}, found {found}"
                )
        return tuple(mx.zeros_like(a) if g is None else g for a, g in zip(arrays, grads))

    made: Any = run(*(args[i] for i in places))
    return made[0]
