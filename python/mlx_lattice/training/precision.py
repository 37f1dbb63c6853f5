"""Mixed precision: float32 weights, forward and backward in 16 bits, loss scaling.

Weights are cast inside the differentiated function, so that their gradients come back in float32.
float16 has few exponents: the loss is multiplied by `scale` before the backward pass and gradients
are divided by it (Micikevicius et al., ICLR 2018). A step whose gradients are not finite is left
out and halves the scale; `GROWTH` good steps double it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mlx.core as mx
from mlx.utils import tree_map

from ..nn._arrays import named_arrays

if TYPE_CHECKING:
    from mlx.nn import Module

Tree = TypeVar("Tree")
Gradient = Callable[[object], tuple[tuple[mx.array, object], "dict[str, Any]"]]
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
FIRST, LEAST, MOST, GROWTH = 2.0**15, 1.0, 2.0**24, 500


class Precision:
    """name: float32, bfloat16 or float16. `state` is what a checkpoint keeps."""

    def __init__(self, name: str = "float32") -> None:
        if name not in DTYPES:
            raise ValueError(
                f"[Precision] name: found {name!r}, expected one of {', '.join(DTYPES)}"
            )
        self.dtype = DTYPES[name]
        self.scale = FIRST if name == "float16" else 1.0
        self.good_steps = 0
        self.left_out = 0

    @property
    def plain(self) -> bool:
        return bool(self.dtype == mx.float32)

    @property
    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self.good_steps, "left_out": self.left_out}

    @state.setter
    def state(self, values: dict[str, float]) -> None:
        self.scale = float(values["scale"])
        self.good_steps, self.left_out = int(values["good_steps"]), int(values["left_out"])

    def cast(self, tree: Tree) -> Tree:
        """float32 arrays of a tree in this precision; others as they are."""

        def one(a: mx.array) -> mx.array:
            return a.astype(self.dtype) if a.dtype == mx.float32 else a

        return tree if self.plain else cast(Tree, tree_map(one, tree))

    def item(self, item: object) -> object:
        """An item whose tensor has its features in this precision."""
        if self.plain:
            return item
        if not hasattr(item, "with_feats"):
            raise TypeError(
                f"[Precision] an item of type {type(item).__name__} cannot be cast; "
                "expected a Scan, or an item with the method with_feats(cast)"
            )
        change: Callable[[Callable[[mx.array], mx.array]], object] = item.with_feats
        return change(lambda feats: feats.astype(self.dtype))

    def usable(self, gradients: dict[str, Any]) -> bool:
        """Whether all gradients are finite; adjusts the scale."""
        if self.dtype != mx.float16:
            return True
        finite = mx.stack([mx.isfinite(a).all() for _, a in named_arrays(gradients)]).all().item()
        if finite:
            self.good_steps += 1
            if self.good_steps % GROWTH == 0:
                self.scale = min(self.scale * 2, MOST)
        else:
            self.left_out += 1
            self.good_steps = 0
            self.scale = max(self.scale / 2, LEAST)
        return bool(finite)


def value_and_grad(
    model: Module,
    loss: Callable[..., mx.array | tuple[mx.array, object]],
    precision: Precision,
) -> Gradient:
    """f(item) -> ((value, outputs), gradients) for the float32 trainable parameters."""

    def scaled(parameters: dict[str, Any], item: object) -> tuple[mx.array, object]:
        model.update(precision.cast(parameters))
        found = loss(model, precision.item(item))
        value, outputs = found if isinstance(found, tuple) else (found, None)
        return value.astype(mx.float32) * precision.scale, outputs

    gradient = mx.value_and_grad(scaled)

    def call(item: object) -> tuple[tuple[mx.array, object], dict[str, Any]]:
        master = model.trainable_parameters()
        try:
            (value, outputs), gradients = gradient(master, item)
        finally:
            model.update(master)
        scale = precision.scale
        if scale != 1:
            value = value / scale
            gradients = tree_map(lambda g: g / scale, gradients)
        return (value, outputs), gradients

    return call
