"""An operation of one's own with its own derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_unflatten

from ..core._checks import function
from ..nn._arrays import named_arrays

__all__ = ["custom_sparse_op_with_grad"]

HELD = object()  # the place of an array among saved values


def custom_sparse_op_with_grad(
    forward_fn: Callable[..., Any], backward_fn: Callable[..., Any], *args: object
) -> mx.array:
    """forward_fn(*args), with backward_fn(saved, grad) as its derivative.

    forward_fn returns the output, or (output, saved). Without `saved`, the tuple of args takes its
    place. Then backward_fn returns one gradient per array of args, in order, or one per argument
    with None for those that are no arrays. A single gradient may stand alone, and None is a zero
    gradient, as indices have it.

    Raises:
        TypeError: One of the two is no function.
        ValueError: backward_fn returns another number of gradients, or one of another shape.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_lattice import points
        >>> def square(a):
        ...     op = points.custom_sparse_op_with_grad
        ...     return op(lambda a: (a * a, a), lambda saved, grad: 2 * grad * saved, a)
        >>> mx.grad(lambda a: square(a).sum())(mx.array([1.0, 3.0])).tolist()
        [2.0, 6.0]
    """
    function("custom_sparse_op_with_grad", "forward_fn", forward_fn)
    function("custom_sparse_op_with_grad", "backward_fn", backward_fn)
    places = [i for i, a in enumerate(args) if isinstance(a, mx.array)]
    leaves: list[tuple[str, object]] | None = None  # how `saved` was built; None: not given

    def filled(arrays: Sequence[mx.array]) -> list[object]:
        full = list(args)
        for i, a in zip(places, arrays):
            full[i] = a
        return full

    @mx.custom_function
    def run(*arrays: mx.array) -> list[mx.array]:
        nonlocal leaves
        result = forward_fn(*filled(arrays))
        output, saved = result if isinstance(result, tuple) else (result, None)
        if saved is None:
            leaves = None
            return [output]
        found: list[tuple[str, object]] = [*named_arrays({"saved": saved})]
        leaves = [(name, HELD if isinstance(leaf, mx.array) else leaf) for name, leaf in found]
        return [output, *(leaf for _, leaf in found if isinstance(leaf, mx.array))]

    @run.vjp
    def run_vjp(
        arrays: mx.array | Sequence[mx.array], cotangents: list[mx.array], outputs: list[mx.array]
    ) -> tuple[mx.array, ...]:
        arrays = arrays if isinstance(arrays, (tuple, list)) else (arrays,)
        saved: object = tuple(filled(arrays))
        if leaves is not None:
            held = iter(outputs[1:])
            saved = tree_unflatten(
                [(name, next(held) if leaf is HELD else leaf) for name, leaf in leaves]
            )["saved"]
        return _checked_gradients(arrays, places, len(args), backward_fn(saved, cotangents[0]))

    return cast("list[mx.array]", run(*(args[i] for i in places)))[0]


def _checked_gradients(
    arrays: Sequence[mx.array], places: Sequence[int], count: int, found: object
) -> tuple[mx.array, ...]:
    """One gradient per array, of its shape; zeros where there is none.

    The arrays stand at `places` among `count` arguments; `found` may have one entry for each.
    """
    grads = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(grads) == count != len(arrays):
        others = [g for i, g in enumerate(grads) if i not in places]
        if all(g is None for g in others):
            grads = [grads[i] for i in places]
    if len(grads) != len(arrays):
        either = "" if count == len(arrays) else f", one per array, or {count}, one per argument"
        raise ValueError(
            f"[custom_sparse_op_with_grad] backward_fn must return {len(arrays)} gradients{either},"
            f" found {len(grads)}"
        )
    for i, (a, g) in enumerate(zip(arrays, grads)):
        if g is not None and (not isinstance(g, mx.array) or g.shape != a.shape):
            shape = g.shape if isinstance(g, mx.array) else type(g).__name__
            raise ValueError(
                "[custom_sparse_op_with_grad] backward_fn must return gradients of the shapes"
                f" of args: gradient {i} must have shape {a.shape}, found {shape}"
            )
    pairs = cast("list[tuple[mx.array, mx.array | None]]", list(zip(arrays, grads)))
    return tuple(mx.zeros_like(a) if g is None else g for a, g in pairs)
